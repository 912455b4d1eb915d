package redis

import (
	"fmt"
	"testing"
)

// The replicas of a shard count, also those that are down, and no others. After a fail-over the former primary is one of them, until it is
// forgotten.
func TestShards(t *testing.T) {
	t.Parallel()
	const (
		a1 = "a1 :1@11,,shard-id=x myself,master - 0 0 1 connected 0-5\n"
		a2 = "a2 :2@12 slave a1 0 0 1 connected\n"
		a3 = "a3 :3@13 slave,fail a1 0 0 1 disconnected\n"
		b1 = "b1 :4@14 master - 0 0 2 connected 6-9\n"
		b2 = "b2 :5@15 slave b1 0 0 2 connected\n"
		c1 = "c1 :6@16 master - 0 0 0 connected\n\n"
		// After a fail-over.
		down     = "a1 :1@11 master,fail - 0 0 1 disconnected\n"
		starting = "a1 :1@11 master - 0 0 1 connected\n"
		promoted = "a2 :2@12 myself,master - 0 0 3 connected 0-5\n"
	)
	first, second := map[string]string{"a1": "h:1", "b1": "h:4"}, map[string]string{"a2": "h:2", "b1": "h:4"}
	known, _ := shardsOf(first, parseNodes(a1+a2+a3+b1+b2), nil)
	for what, test := range map[string]struct {
		primaries map[string]string
		nodes     string
		before    shards
		want      string
	}{
		"each has its own":            {first, a1 + a2 + a3 + b1 + c1, nil, "map[h:1:[a1 a2 a3] h:4:[b1]] 0"},
		"one moves":                   {first, a1 + b1 + b2 + "a2 :2@12 slave b1 0 0 1 connected\n", known, "map[h:1:[a1] h:4:[b1 a2 b2]] 0"},
		"a fail-over":                 {second, down + promoted + a3 + b1 + b2, known, "map[h:2:[a2 a1 a3] h:4:[b1 b2]] 0"},
		"the former one comes back":   {second, starting + promoted + a3 + b1 + b2, known, "map[h:2:[a2 a1 a3] h:4:[b1 b2]] 0"},
		"the others are forgotten":    {second, promoted + b1 + b2, known, "map[h:2:[a2] h:4:[b1 b2]] 0"},
		"a fail-over before the time": {second, down + promoted + b1 + b2, nil, "map[h:2:[a2] h:4:[b1 b2]] 1"},
		"a shard without its keys":    {map[string]string{"b1": "h:4"}, starting + a2 + b1, known, "map[h:4:[b1]] 0"},
	} {
		now, homeless := shardsOf(test.primaries, parseNodes(test.nodes), test.before)
		if got := fmt.Sprint(map[string][]string(now), " ", homeless); got != test.want {
			t.Errorf("%s: %s, want %s", what, got, test.want)
		}
	}
}
