package driver

import (
	"fmt"
	"slices"
)

// BreakTarget says whose lease a [Breaker] breaks. The zero value names nobody, and is refused.
type BreakTarget struct {
	token   uint64
	anybody bool
}

// BreakToken is the holder with a token: the one that somebody has seen. A later holder is left alone. Token 0
// is none, so BreakToken(0) names nobody.
func BreakToken(token uint64) BreakTarget { return BreakTarget{token: token} }

// BreakAnybody is whoever holds the lock when the backend gets the request.
func BreakAnybody() BreakTarget { return BreakTarget{anybody: true} }

// Token returns the token of the holder to break, and false if it is anybody's or nobody's.
func (t BreakTarget) Token() (token uint64, only bool) { return t.token, t.token != 0 }

// String returns "token 7", "anybody" or "nobody".
func (t BreakTarget) String() string {
	switch {
	case t.anybody:
		return "anybody"
	case t.token != 0:
		return fmt.Sprintf("token %d", t.token)
	default:
		return "nobody"
	}
}

// ValidateBreak checks the arguments of a [Breaker] against a backend's limits. The error is an *[InvalidError].
func ValidateBreak(name string, target BreakTarget, l Limits) error {
	if target == (BreakTarget{}) {
		return Invalid("Target", target.String(), "BreakToken with the holder's token, or BreakAnybody")
	}
	return ValidateName(name, l)
}

// CheckTarget reports whether a break with the target affects the holder in the record. It returns a *[HeldError] if
// another than the target holds the lock. The latest holder of a free lock is affected, too, if it is the target: its
// lease has expired, and could still be renewed. It is for drivers that implement [Breaker].
func (r Record) CheckTarget(target BreakTarget) (affects bool, err error) {
	isTarget := func(h Holder) bool { return h.Token == target.token && h.Token != 0 }
	affects = target.anybody || slices.ContainsFunc(r.Holders, isTarget) || len(r.Holders) == 0 && isTarget(Holder{Token: r.Token})
	if !affects && r.State == StateHeld {
		return false, &HeldError{Record: r}
	}
	return affects, nil
}
