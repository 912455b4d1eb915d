package doctor

import "github.com/holdfast-go/holdfast/driver"

// promises reports what the driver declares: what the backend promises, and what it does not.
func (r *Report) promises(info driver.Info) {
	expiry := driver.Finding{Subject: subjectExpiry, Detail: "the backend's clock judges them"}
	switch info.Expiry {
	case driver.ByServer:
	case driver.ByObservation:
		expiry.Detail = "the backend has no clock: a process takes a lock over after it has seen no renewal for the holder's whole TTL"
	default:
		expiry.Level, expiry.Detail = driver.LevelUnchecked, "the driver does not declare who judges them"
	}
	r.add(expiry)

	failover := driver.Finding{Subject: subjectFailover, Detail: "a grant outlives the server that has acknowledged it"}
	switch info.Failover {
	case driver.GrantsSurvive:
	case driver.GrantsMayBeForgotten:
		failover.Level = driver.LevelDoubtful
		failover.Detail = "a grant may be forgotten when a server crashes: two holders can then have one lock, and a token can come twice"
		failover.Remedy = "Use a backend whose grants survive if two holders at once would do harm."
	default:
		failover.Level, failover.Detail = driver.LevelUnchecked, "the driver does not declare whether grants survive it"
	}
	r.add(failover)

	free := driver.Finding{Subject: subjectFree}
	switch {
	case !info.Free.Data:
		free.Detail = "they keep no data: the next holder does not find what the last one stored"
	case info.Free.RemovedAfter > 0:
		free.Detail = "their records stay for " + driver.FormatDuration(info.Free.RemovedAfter) + " and are then removed, with their data"
	default:
		free.Detail = "their records stay, with their data"
	}
	r.add(free)
}
