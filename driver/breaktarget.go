package driver

import (
	"fmt"
	"slices"
)

// BreakTarget says whose lease a [Breaker] breaks. The zero value names nobody, and is refused.
type BreakTarget struct {
	token            uint64
	anybody, unknown bool
}

// BreakToken is the holder with a token: the one that somebody has seen. A later holder is left alone. Token 0
// is none, so BreakToken(0) names nobody.
func BreakToken(token uint64) BreakTarget { return BreakTarget{token: token} }

// BreakAnybody is whoever holds the lock when the backend gets the request.
func BreakAnybody() BreakTarget { return BreakTarget{anybody: true} }

// BreakUnknown is the holder whose token the backend does not know: somebody took the lease with another program, or
// acquired the lock a moment ago. A holder with a token is left alone.
func BreakUnknown() BreakTarget { return BreakTarget{unknown: true} }

// Token returns the token of the holder to break, and false if it is anybody's or nobody's. That of [BreakUnknown] is
// 0, which no holder has.
func (t BreakTarget) Token() (token uint64, only bool) { return t.token, t.token != 0 || t.unknown }

// String returns "token 7", "anybody", "unknown holder" or "nobody".
func (t BreakTarget) String() string {
	switch {
	case t.anybody:
		return "anybody"
	case t.token != 0:
		return fmt.Sprintf("token %d", t.token)
	case t.unknown:
		return "unknown holder"
	default:
		return "nobody"
	}
}

// ValidateBreak checks the arguments of a [Breaker] against a backend's limits. The error is an *[InvalidError].
func ValidateBreak(name string, target BreakTarget, l Limits) error {
	if target == (BreakTarget{}) {
		return Invalid("Target", target.String(), "BreakToken with the holder's token, BreakUnknown or BreakAnybody")
	}
	return ValidateName(name, l)
}

// CheckTarget reports whether a break with the target affects the holder in the record. It returns a *[HeldError] if
// another than the target holds the lock. The latest holder of a free lock is affected, too, if it is the target: its
// lease has expired, and could still be renewed. It is for drivers that implement [Breaker].
func (r Record) CheckTarget(target BreakTarget) (affects bool, err error) {
	isTarget := func(h Holder) bool { return h.Token == target.token && h.Token != 0 }
	unknown := r.State == StateHeld && r.Token == 0 && len(r.Holders) == 0
	affects = target.anybody || target.unknown && unknown || slices.ContainsFunc(r.Holders, isTarget) ||
		len(r.Holders) == 0 && isTarget(Holder{Token: r.Token})
	if !affects && r.State == StateHeld {
		return false, &HeldError{Record: r}
	}
	return affects, nil
}
