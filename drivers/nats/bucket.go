package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// streamConfig has the settings of a stream that matter here.
type streamConfig struct {
	Name          string   `json:"name"`
	Description   string   `json:"description,omitempty"`
	Subjects      []string `json:"subjects,omitempty"`
	Retention     string   `json:"retention"`
	MaxConsumers  int      `json:"max_consumers"`
	MaxMsgs       int64    `json:"max_msgs"`
	MaxBytes      int64    `json:"max_bytes"`
	MaxAge        int64    `json:"max_age"`
	MaxPerSubject int64    `json:"max_msgs_per_subject"`
	MaxMsgSize    int64    `json:"max_msg_size"`
	Discard       string   `json:"discard"`
	Storage       string   `json:"storage"`
	Replicas      int      `json:"num_replicas"`
	FirstSequence uint64   `json:"first_seq,omitempty"`
	NoAck         bool     `json:"no_ack,omitempty"`
	Sealed        bool     `json:"sealed,omitempty"`
	DenyDelete    bool     `json:"deny_delete,omitempty"`
	AllowRollup   bool     `json:"allow_rollup_hdrs,omitempty"`
	AllowDirect   bool     `json:"allow_direct,omitempty"`
	Counter       bool     `json:"allow_msg_counter,omitempty"`
	PersistMode   string   `json:"persist_mode,omitempty"`
	NewPerSubject bool     `json:"discard_new_per_subject,omitempty"`

	Mirror    json.RawMessage   `json:"mirror,omitempty"`
	Sources   []json.RawMessage `json:"sources,omitempty"`
	Transform json.RawMessage   `json:"subject_transform,omitempty"`
}

// clusterInfo says where the copies of a stream are.
type clusterInfo struct {
	Leader   string `json:"leader"`
	Replicas []struct {
		Name    string `json:"name"`
		Current bool   `json:"current"`
		Offline bool   `json:"offline"`
	} `json:"replicas"`
}

// problem says why a bucket is not one for locks, or is empty.
func (c streamConfig) problem(bucket string) string {
	switch {
	case len(c.Mirror) > 0 || len(c.Sources) > 0:
		return "it copies another stream (mirror or sources): a copy has other writes"
	case len(c.Subjects) != 1 || c.Subjects[0] != "$KV."+bucket+".>" || len(c.Transform) > 0:
		return "its subjects are not those of a key-value bucket"
	case c.MaxAge != 0:
		return "its keys expire (max_age, --ttl): a lock would be forgotten, and its tokens begin anew"
	case c.Discard != "new":
		return "when it is full, it removes keys (discard old): a lock would be forgotten"
	case c.NewPerSubject:
		return "it refuses to replace a value (discard_new_per_subject)"
	case c.PersistMode == "async":
		return "it acknowledges writes that are not stored (persist_mode async): a crash of the server would forget locks"
	case c.MaxPerSubject != 1:
		return fmt.Sprintf("its history is %d (max_msgs_per_subject), and must be 1: every renewal would be kept", c.MaxPerSubject)
	case c.Storage != "file":
		return "it is kept in memory (storage): a restart would forget all locks"
	case c.Retention != "limits":
		return "it removes what was read (retention " + driver.Quote(c.Retention) + ", and must be limits)"
	case c.NoAck:
		return "it does not acknowledge writes (no_ack)"
	case c.Counter:
		return "its values are numbers (allow_msg_counter)"
	case c.Sealed:
		return "it is sealed, and takes no writes"
	}
	return ""
}

// refusal is the error for a bucket that is not one for locks, or nil.
func (c streamConfig) refusal(bucket string) error {
	problem := c.problem(bucket)
	if problem == "" {
		return nil
	}
	return driver.Damaged(fmt.Errorf("the bucket %s is not one for locks: %s. It was not changed: name another bucket in the URL, which is "+
		"made, or make it with nats kv add", bucket, problem))
}

// prepare checks the bucket, and makes it if there is none.
func (s *store) prepare(ctx context.Context) error {
	c, err := s.link.use(ctx)
	if err != nil {
		return err
	}
	for range 3 {
		info, err := s.streamInfo(ctx, c, nil)
		if err == nil {
			return info.Config.refusal(s.bucket)
		}
		if !hasCode(err, codeNoStream) {
			return err
		}
		var made struct {
			Config streamConfig `json:"config"`
		}
		switch err := s.api(ctx, c, "STREAM.CREATE", s.newBucket(c), &made); {
		case hasCode(err, codeNameInUse): // another program has made it just now
		case err != nil:
			return err
		default:
			s.logger.Info("holdfast: there was no bucket for locks, it was made", "backend", backend, "bucket", s.bucket,
				"replicas", made.Config.Replicas)
		}
	}
	return errors.New("the bucket was made, and does not exist")
}

// newBucket is a bucket as the library of NATS makes it, but the sequence begins with the time: so no version comes again after the bucket
// was deleted and made anew.
func (s *store) newBucket(c *conn) streamConfig {
	replicas := s.replicas
	if replicas == 0 {
		if replicas = 1; c.nc.ConnectedClusterName() != "" {
			replicas = 3
		}
	}
	return streamConfig{
		Name: s.stream(), Description: "locks of Holdfast", Subjects: []string{"$KV." + s.bucket + ".>"}, Retention: "limits",
		MaxConsumers: -1, MaxMsgs: -1, MaxBytes: -1, MaxPerSubject: 1, MaxMsgSize: -1, Discard: "new", Storage: "file", Replicas: replicas,
		DenyDelete: true, AllowRollup: true, AllowDirect: true, FirstSequence: uint64(max(1, time.Now().UnixMilli())),
	}
}
