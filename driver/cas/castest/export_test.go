package castest

import "context"

// FailedWatch returns the clauses of RunWatch that a Watch breaks.
func FailedWatch(ctx context.Context, w Watched) map[string]error {
	failed := map[string]error{}
	for _, c := range watchClauses {
		if err := c.check(ctx, w.withDefaults()); err != nil {
			failed[c.name] = err
		}
	}
	return failed
}
