package redis

import (
	"maps"
	"slices"
	"strings"
)

// node is a server of a cluster, as CLUSTER NODES lists it.
type node struct {
	primary string // the ID of its primary, if it is a replica
	failed  bool
}

// parseNodes reads the answer to CLUSTER NODES, by ID. Those that are down are in it until the cluster was told to forget them.
func parseNodes(text string) map[string]node {
	nodes := map[string]node{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 4 {
			continue
		}
		n, flags := node{}, strings.Split(words[2], ",")
		if n.failed = slices.Contains(flags, "fail"); slices.Contains(flags, "slave") {
			n.primary = words[3]
		}
		nodes[words[0]] = n
	}
	return nodes
}

// shards are the IDs of the servers that have the same keys: by the address of their primary, which is the first.
type shards map[string][]string

// shardsOf finds the shards of a cluster. primaries has the addresses of the servers that have keys, by ID; before are the shards that were
// known so far.
//
// After a fail-over nothing says that a former primary which is down belongs to the shard: that follows from before. homeless is how many
// servers that are down belong to a shard that is not known.
func shardsOf(primaries map[string]string, nodes map[string]node, before shards) (now shards, homeless int) {
	of := map[string]string{} // the ID of its primary, for each server
	for id, n := range nodes {
		if _, is := primaries[n.primary]; is {
			of[id] = n.primary
		}
	}
	for id := range primaries {
		of[id] = id
	}
	for _, shard := range before {
		i := slices.IndexFunc(shard, func(id string) bool { _, is := primaries[id]; return is })
		for _, id := range shard {
			if _, known := nodes[id]; i >= 0 && known && of[id] == "" {
				of[id] = shard[i]
			}
		}
	}
	now = shards{}
	for id, addr := range primaries {
		now[addr] = []string{id}
	}
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		switch p := of[id]; {
		case p == "" && nodes[id].failed:
			homeless++
		case p != "" && p != id:
			now[primaries[p]] = append(now[primaries[p]], id)
		}
	}
	return now, homeless
}

// replicas is how many each primary has. A homeless one may be of any shard that has fewer than another.
func (s shards) replicas(homeless int) map[string]int {
	of, most := map[string]int{}, 0
	for addr, shard := range s {
		of[addr] = len(shard) - 1
		most = max(most, of[addr])
	}
	for addr, n := range of {
		of[addr] = min(n+homeless, most)
	}
	return of
}
