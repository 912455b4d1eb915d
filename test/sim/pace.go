package sim

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// rateKey is what must not be requested too often.
type rateKey struct {
	op, name string
	id       driver.LeaseID
}

// rate counts requests in one second.
type rate struct {
	second time.Duration
	n      int
}

// count counts a request. No loop sends requests faster than its backoff. mu is held.
func (p *process) count(op, name string, id driver.LeaseID) {
	p.w.requests++
	const second = int(time.Second / time.Millisecond)
	ttl := int(p.plan.TTL / time.Millisecond)
	switch op {
	case "acquire", "hand over": // a lock that should be free is asked for again after 10 ms, 20 ms, …
		p.limit(rateKey{op: "acquire", name: name}, 100)
	case "renew":
		p.limit(rateKey{op, name, id}, second/(ttl/300*3/4)+5)
	case "release":
		p.limit(rateKey{op, name, id}, second/(min(ttl/100, second)*3/4)+5)
	case "read":
		p.limit(rateKey{op: op}, 60)
	}
}

// noteAnswer counts failed requests for a lock. Each caller leaves the backend alone for at least
// three quarters of a hundredth of its TTL, and longer after each further failure. A caller that is told of the failure may be
// followed by another at once. mu is held.
func (p *process) noteAnswer(op, name string, err error) {
	if (op == "acquire" || op == "hand over") && (!driver.OutcomeKnown(err) || driver.Lasting(err)) {
		const second, callers = int(time.Second / time.Millisecond), 12
		most := second/(int(p.plan.TTL/time.Millisecond)/100*3/4) + callers + p.callersSince(name, p.w.now().Truncate(time.Second))
		p.limit(rateKey{op: "failed acquire", name: name}, most)
	}
}

// callersSince counts the callers that have begun to wait for a lock since then. mu is held.
func (p *process) callersSince(name string, began time.Duration) (n int) {
	for _, a := range slices.Backward(p.w.asks[name]) {
		if a.from < began {
			break
		}
		if a.p == p {
			n++
		}
	}
	return n
}

// limit counts one more in this second. mu is held.
func (p *process) limit(key rateKey, most int) {
	r := p.rates[key]
	if r == nil {
		r = &rate{}
		p.rates[key] = r
	}
	if now := p.w.now().Truncate(time.Second); r.second != now {
		r.second, r.n = now, 0
	}
	if r.n++; r.n == most+1 {
		p.w.violate(BoundedRequests, "%s: %s %q is sent more than %d times within a second", p.name, key.op, key.name, most)
	}
}
