package kubernetes

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/httpstore"
)

const (
	// Annotation is that of a Lease with the lock's record. It is for this package alone: a record that was edited counts as damaged.
	Annotation = "holdfast-go.github.io/record"
	// label is that of all Leases that are locks, so that a list finds them among those of others.
	label      = "holdfast-go.github.io/lock"
	labelValue = "true"
)

// microTime is how the API server writes times.
const microTime = "2006-01-02T15:04:05.000000Z07:00"

// lease is a Lease object, as far as this package reads it.
type lease struct {
	Metadata struct {
		Name            string            `json:"name"`
		ResourceVersion string            `json:"resourceVersion"`
		Annotations     map[string]string `json:"annotations"`
		ManagedFields   []managed         `json:"managedFields"`
	} `json:"metadata"`
	Spec spec `json:"spec"`
}

// managed says which fields a program has set, and when it last changed one of them, by the clock of the API server that it used.
type managed struct {
	Time     time.Time       `json:"time"`
	FieldsV1 json.RawMessage `json:"fieldsV1"`
}

// spec is what client-go's elector and kubectl read. In a patch nil removes a field.
type spec struct {
	HolderIdentity       *string    `json:"holderIdentity"`
	LeaseDurationSeconds *int64     `json:"leaseDurationSeconds"`
	AcquireTime          *timestamp `json:"acquireTime"`
	RenewTime            *timestamp `json:"renewTime"`
	LeaseTransitions     *int64     `json:"leaseTransitions"`
}

// timestamp is a time in microseconds.
type timestamp struct{ time.Time }

// MarshalJSON implements [json.Marshaler].
func (t timestamp) MarshalJSON() ([]byte, error) { return json.Marshal(t.UTC().Format(microTime)) }

func at(t time.Time) *timestamp {
	if t.IsZero() {
		return nil
	}
	return &timestamp{t.UTC().Truncate(time.Microsecond)}
}

func (t *timestamp) equal(other *timestamp) bool {
	return (t == nil) == (other == nil) && (t == nil || t.Equal(other.Time))
}

// hidden is for how many seconds renewals may not show: one for the step of the clock, one for what two renewals within a second hide, and
// the time limit of a call. A call that was answered so late makes package cas conclude a time so far ahead of the API server's. A
// renewal by that time shows in renewTime, and none of those that follow does until the server's clock has caught up.
const hidden = 2 + int64(callLimit/time.Second)

// specOf returns the fields that show a record.
//
// An elector takes a Lease over when it has not seen it change for leaseDurationSeconds, and it sees whole seconds of renewTime
// only. So the duration is longer than the TTL: by hidden. The fraction of renewTime is another one for each renewal.
//
// The identity has the token: an elector that finds its own would believe that it leads.
func specOf(p cas.Present) spec {
	seconds, transitions := int64(1), int64(0)
	s := spec{LeaseDurationSeconds: &seconds, LeaseTransitions: &transitions, AcquireTime: at(p.AcquiredAt)}
	if p.Grants > 1 {
		transitions = int64(min(p.Grants-1, math.MaxInt32))
	}
	if !p.RenewedAt.IsZero() {
		s.RenewTime = at(p.RenewedAt.Truncate(time.Second).Add(time.Duration(p.Renewals%1e6) * time.Microsecond))
	}
	if p.Held {
		identity := p.Owner + "_" + strconv.FormatUint(p.Token, 10)
		s.HolderIdentity = &identity
		whole := int64((p.TTL + time.Second - 1) / time.Second)
		seconds = min(whole+hidden, math.MaxInt32)
	}
	return s
}

// holder is who has the Lease by its fields; empty if nobody has.
func (s spec) holder() string {
	if s.HolderIdentity == nil {
		return ""
	}
	return *s.HolderIdentity
}

func (s spec) seconds() int64 {
	if s.LeaseDurationSeconds == nil {
		return 0
	}
	return *s.LeaseDurationSeconds
}

// same reports whether two Leases have the same grant. The identity of a lock is another one for each grant.
func (s spec) same(other spec) bool {
	return s.holder() == other.holder() && s.seconds() == other.seconds() && s.AcquireTime.equal(other.AcquireTime)
}

// freedByLoser reports whether an elector that had lost the Lease, and had not noticed, has released it under a lock. The electors of
// client-go 0.37 read the Lease before they release it, and do not look whose it is. One that had acquired it since would have
// counted that in leaseTransitions, and a person who frees the lock by taking the holder away leaves renewTime as it is.
//
// Promise 1: the lock is still held. Its next renewal writes the fields again.
func (s spec) freedByLoser(ours spec) bool {
	return s.holder() == "" && ours.holder() != "" && s.LeaseTransitions != nil && *s.LeaseTransitions == *ours.LeaseTransitions &&
		!s.RenewTime.equal(ours.RenewTime)
}

// value is what a Lease says, at a time of the API server that was read with it.
func (l *lease) value(now time.Time) cas.Value {
	v := cas.Value{Data: []byte(l.Metadata.Annotations[Annotation]), Version: l.Metadata.ResourceVersion, Now: now}
	written, renewed := l.stamps()
	v.Unsure = httpstore.Ahead(written, now)
	present, ok := cas.ReadPresent(v.Data)
	if ours := specOf(present); len(v.Data) > 0 && (!ok || !present.Other && (l.Spec.same(ours) || l.Spec.freedByLoser(ours))) {
		return v // also a record that is damaged
	}
	if len(v.Data) == 0 {
		v.Data, v.Order = nil, order(l.Metadata.ResourceVersion)
	}
	v.Other = l.Spec.other(renewed)
	return v
}

// other is the holder of a Lease that an elector of client-go has written.
func (s spec) other(renewed time.Time) *cas.Other {
	o := &cas.Other{Owner: s.holder(), RenewedAt: renewed, TTL: time.Duration(max(s.seconds(), 1)) * time.Second}
	if s.LeaseTransitions != nil && *s.LeaseTransitions >= 0 {
		o.Grants = uint64(*s.LeaseTransitions) + 1
	}
	if s.AcquireTime != nil {
		o.AcquiredAt = s.AcquireTime.Time
	}
	if s.holder() != "" {
		text, _ := json.Marshal(s) // it was decoded from JSON
		o.Mark = string(text)
	}
	return o
}

// stamps returns when the Lease was written, and when its renewTime was. They are zero where the API server has not noted them, or
// somebody has removed that.
func (l *lease) stamps() (written, renewed time.Time) {
	for _, m := range l.Metadata.ManagedFields {
		if m.Time.After(written) {
			written = m.Time
		}
		var fields struct {
			Spec map[string]json.RawMessage `json:"f:spec"`
		}
		if json.Unmarshal(m.FieldsV1, &fields) != nil {
			continue
		}
		if _, sets := fields.Spec["f:renewTime"]; sets && m.Time.After(renewed) {
			renewed = m.Time
		}
	}
	return written, renewed
}

// order is the number that each write of the cluster raises.
func order(resourceVersion string) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil || n > cas.MaxOrder {
		return 0
	}
	return n
}

// body is the object that creates a Lease with a record, or the patch that changes one with a version.
func body(name string, data []byte, version string) ([]byte, error) {
	meta := map[string]any{"annotations": map[string]string{Annotation: string(data)}, "labels": map[string]string{label: labelValue}}
	object := map[string]any{"metadata": meta}
	present, ok := cas.ReadPresent(data)
	switch {
	case !ok: // the value of [cas.ProbeKey]
	case present.Other: // whose fields are left alone
	default:
		object["spec"] = specOf(present)
	}
	if version != "" {
		meta["resourceVersion"] = version
	} else {
		object["apiVersion"], object["kind"], meta["name"] = "coordination.k8s.io/v1", "Lease", name
	}
	text, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding the Lease: %w", err)
	}
	return text, nil
}
