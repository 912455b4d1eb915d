package otelholdfast

import (
	"errors"

	"go.opentelemetry.io/otel/metric"
)

// instruments are all that there are. docs/metrics.md lists them; a test compares the two.
type instruments struct {
	acquireDuration, holdDuration, renewalMargin, operationDuration metric.Float64Histogram
	batchSize                                                       metric.Int64Histogram
	waiting, held, leader, masterStatus, partitions                 metric.Int64UpDownCounter
	losses, overruns, transitions, fenceRejections, eventsDropped   metric.Int64Counter
}

// create makes the instruments.
func (i *instruments) create(m metric.Meter) (err error) {
	seconds := func(to *metric.Float64Histogram, name, text string, bounds ...float64) {
		h, e := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(text), metric.WithExplicitBucketBoundaries(bounds...))
		*to, err = h, errors.Join(err, e)
	}
	level := func(to *metric.Int64UpDownCounter, name, unit, text string) {
		c, e := m.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
		*to, err = c, errors.Join(err, e)
	}
	counter := func(to *metric.Int64Counter, name, unit, text string) {
		c, e := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		*to, err = c, errors.Join(err, e)
	}
	seconds(&i.acquireDuration, "holdfast.acquire.duration", "How long a caller waited for a lock, by its result.",
		.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)
	seconds(&i.holdDuration, "holdfast.hold.duration", "How long a lock was held, by how that ended.",
		.01, .1, 1, 5, 10, 30, 60, 300, 1800, 7200, 21600, 86400, 604800)
	seconds(&i.renewalMargin, "holdfast.renewal.margin", "The time that was left until the loss of a hold when it was renewed.",
		0, .1, .25, .5, 1, 2, 2.5, 3, 5, 7.5, 10, 15, 20, 30, 60, 300, 1800)
	seconds(&i.operationDuration, "holdfast.client.operation.duration", "How long one call of the backend took.",
		.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10)
	level(&i.waiting, "holdfast.waiting", "{caller}", "Callers that wait for a lock now.")
	level(&i.held, "holdfast.held", "{lock}", "Locks that are held now.")
	level(&i.leader, "holdfast.leader", "{leadership}", "1 while this instance leads, 0 while a candidate; not for locks with slots.")
	level(&i.masterStatus, "leader_election_master_status", "", "The same as holdfast.leader, under the name that client-go uses.")
	level(&i.partitions, "holdfast.partitions.owned", "{partition}", "Partitions that this instance owns now.")
	counter(&i.losses, "holdfast.losses", "{loss}", "Holds that ended because their lease was lost.")
	counter(&i.overruns, "holdfast.overruns", "{overrun}", "Holds whose work still ran when another could be granted the lock.")
	counter(&i.transitions, "holdfast.leader.transitions", "{election}", "How often this instance was elected.")
	counter(&i.fenceRejections, "holdfast.fence.rejections", "{write}", "Writes that a guard or a fence refused because the hold was over.")
	counter(&i.eventsDropped, "holdfast.events.dropped", "{event}", "Events that an observer missed because it was too slow.")
	h, e := m.Int64Histogram("holdfast.renewal.batch.size", metric.WithUnit("{lease}"),
		metric.WithDescription("How many leases one call renewed."),
		metric.WithExplicitBucketBoundaries(1, 2, 5, 10, 25, 50, 100, 250, 500))
	i.batchSize = h
	return errors.Join(err, e)
}
