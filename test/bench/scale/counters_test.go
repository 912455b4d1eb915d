//go:build unix

package scale

import (
	"context"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	mongodriver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/test/mongotest"
)

// counters are what the members of the set have counted since their start, all together.
type counters struct {
	// commands are those of clients, by name: without the monitoring of connections and
	// without replication.
	commands   map[string]int64
	cpu        time.Duration // processor time
	replicated int64         // bytes that the secondaries have read from the oplog
	open       int64         // connections that are open now
}

// total returns the number of all commands.
func (c counters) total() (n int64) {
	for _, count := range c.commands {
		n += count
	}
	return n
}

// minus returns what was counted after an earlier moment.
func (c counters) minus(before counters) counters {
	d := counters{commands: map[string]int64{}, cpu: c.cpu - before.cpu, replicated: c.replicated - before.replicated,
		open: c.open - before.open}
	for name, n := range c.commands {
		d.commands[name] = n - before.commands[name]
	}
	return d
}

// meter reads the counters of servers.
type meter struct {
	servers servers
	members []*mongodriver.Client
}

func newMeter(s servers) *meter {
	m := &meter{servers: s}
	for _, host := range s.Hosts() {
		m.members = append(m.members, mongotest.Connect(s.tb, "mongodb://"+host+"/?directConnection=true", options.Client().SetAppName("meter")))
	}
	return m
}

// notCounted are commands that clients do not send for their locks: those that monitor connections
// and end them, those of replication, and the meter's own.
var notCounted = map[string]bool{
	"hello": true, "isMaster": true, "ismaster": true, "ping": true, "buildInfo": true, "endSessions": true, "serverStatus": true,
	"replSetHeartbeat": true, "replSetUpdatePosition": true, "saslStart": true, "saslContinue": true, "getParameter": true,
}

// read returns the counters of now.
func (m *meter) read() counters {
	m.servers.tb.Helper()
	c := counters{commands: map[string]int64{}}
	for _, member := range m.members {
		var status struct {
			Connections struct{ Current int64 }
			Metrics     struct {
				Commands bson.Raw
				Repl     struct {
					Network struct {
						Getmores struct{ Num int64 }
						Bytes    int64
					}
				}
			}
		}
		err := member.Database("admin").RunCommand(context.Background(), bson.D{{Key: "serverStatus", Value: 1}}).Decode(&status)
		if err != nil {
			m.servers.tb.Fatal(err)
		}
		elements, err := status.Metrics.Commands.Elements()
		if err != nil {
			m.servers.tb.Fatal(err)
		}
		for _, e := range elements {
			doc, isCommand := e.Value().DocumentOK()
			name := strings.TrimPrefix(e.Key(), "_")
			if !isCommand || notCounted[name] {
				continue
			}
			if n, ok := doc.Lookup("total").AsInt64OK(); ok && n > 0 {
				c.commands[name] += n
			}
		}
		c.open += status.Connections.Current
		c.replicated += status.Metrics.Repl.Network.Bytes
		c.commands["getMore"] -= status.Metrics.Repl.Network.Getmores.Num // the members' own reads of the oplog
	}
	for _, pid := range m.servers.PIDs() {
		c.cpu += processCPU(pid)
	}
	return c
}
