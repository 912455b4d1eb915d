package etcd

import (
	"bytes"
	"strconv"
)

// The methods of etcd that are called.
const (
	methodRange        = "/etcdserverpb.KV/Range"
	methodTxn          = "/etcdserverpb.KV/Txn"
	methodDeleteRange  = "/etcdserverpb.KV/DeleteRange"
	methodWatch        = "/etcdserverpb.Watch/Watch"
	methodAuthenticate = "/etcdserverpb.Auth/Authenticate"
	methodAuthStatus   = "/etcdserverpb.Auth/AuthStatus"
	methodStatus       = "/etcdserverpb.Maintenance/Status"
	methodAlarm        = "/etcdserverpb.Maintenance/Alarm"
	methodMemberList   = "/etcdserverpb.Cluster/MemberList"
)

// nothing is a request without fields.
type nothing struct{}

func (nothing) append(to []byte) []byte { return to }

// headed is a part of every answer, and an answer of which nothing else matters.
type headed struct{ Header header }

func (h *headed) take(f field) error {
	if f.id == 1 {
		return decode(f.bytes, &h.Header)
	}
	return nil
}

type header struct {
	ClusterID uint64
	MemberID  uint64
	Revision  int64
}

func (h *header) take(f field) error {
	switch f.id {
	case 1:
		h.ClusterID = f.number
	case 2:
		h.MemberID = f.number
	case 3:
		h.Revision = int64(f.number)
	}
	return nil
}

// keyValue is a key of etcd.
type keyValue struct {
	Key         []byte
	Value       []byte
	ModRevision int64
}

func (kv *keyValue) take(f field) error {
	switch f.id {
	case 1:
		kv.Key = bytes.Clone(f.bytes) // a page is longer than what is kept of it
	case 3:
		kv.ModRevision = int64(f.number)
	case 5:
		kv.Value = bytes.Clone(f.bytes)
	}
	return nil
}

// rangeRequest asks for keys. The requests to delete and to watch keys have Key and RangeEnd in the same fields.
type rangeRequest struct {
	Key       []byte
	RangeEnd  []byte // not included; without one, it is the key alone
	Limit     int64
	Revision  int64
	CountOnly bool
}

func (r rangeRequest) append(to []byte) []byte {
	to = appendBytes(appendBytes(to, 1, r.Key), 2, r.RangeEnd)
	return appendFlag(appendNumber(appendNumber(to, 3, r.Limit), 4, r.Revision), 9, r.CountOnly)
}

type rangeAnswer struct {
	headed
	KVs  []keyValue
	More bool
}

func (a *rangeAnswer) take(f field) error {
	switch f.id {
	case 2:
		var kv keyValue
		err := decode(f.bytes, &kv)
		a.KVs = append(a.KVs, kv)
		return err
	case 3:
		a.More = f.number != 0
	}
	return a.headed.take(f)
}

type putRequest struct {
	Key    []byte
	Value  []byte
	PrevKV bool
}

func (r putRequest) append(to []byte) []byte {
	return appendFlag(appendBytes(appendBytes(to, 1, r.Key), 2, r.Value), 4, r.PrevKV)
}

type putAnswer struct{ PrevKV *keyValue }

func (a *putAnswer) take(f field) error {
	if f.id == 2 {
		a.PrevKV = &keyValue{}
		return decode(f.bytes, a.PrevKV)
	}
	return nil
}

// What a condition compares.
const (
	targetMod   = 2
	targetValue = 3
)

// compare is a condition of a transaction: that the key has a revision, a value, or the revision 0, which says that there is none.
type compare struct {
	Key         []byte
	Target      int64
	ModRevision int64
	Value       []byte
}

func (c compare) append(to []byte) []byte {
	to = appendBytes(appendNumber(to, 2, c.Target), 3, c.Key)
	if c.Target == targetValue {
		return appendSetBytes(to, 7, c.Value)
	}
	return appendSet(to, 6, c.ModRevision)
}

// operation is a part of a transaction: one of the two.
type operation struct {
	Range *rangeRequest
	Put   *putRequest
}

func (o operation) append(to []byte) []byte {
	if o.Range != nil {
		return appendMessage(to, 1, o.Range)
	}
	return appendMessage(to, 2, o.Put)
}

type txnRequest struct {
	Compare []compare
	Success []operation
	Failure []operation
}

func (r txnRequest) append(to []byte) []byte {
	for _, c := range r.Compare {
		to = appendMessage(to, 1, c)
	}
	for _, o := range r.Success {
		to = appendMessage(to, 2, o)
	}
	for _, o := range r.Failure {
		to = appendMessage(to, 3, o)
	}
	return to
}

type txnAnswer struct {
	headed
	Succeeded bool
	Responses []result
}

func (a *txnAnswer) take(f field) error {
	switch f.id {
	case 2:
		a.Succeeded = f.number != 0
	case 3:
		var r result
		err := decode(f.bytes, &r)
		a.Responses = append(a.Responses, r)
		return err
	}
	return a.headed.take(f)
}

// result is that of an operation.
type result struct {
	Range rangeAnswer
	Put   putAnswer
}

func (r *result) take(f field) error {
	switch f.id {
	case 1:
		return decode(f.bytes, &r.Range)
	case 2:
		return decode(f.bytes, &r.Put)
	}
	return nil
}

// watchRequest asks for the changes of a key.
type watchRequest struct{ Create rangeRequest }

func (r watchRequest) append(to []byte) []byte { return appendMessage(to, 1, r.Create) }

// watchAnswer is one of those that come on a stream.
type watchAnswer struct {
	headed
	Created      bool
	Canceled     bool
	CancelReason string
	Events       []event
}

func (a *watchAnswer) take(f field) error {
	switch f.id {
	case 3:
		a.Created = f.number != 0
	case 4:
		a.Canceled = f.number != 0
	case 6:
		a.CancelReason = string(f.bytes)
	case 11:
		var e event
		err := decode(f.bytes, &e)
		a.Events = append(a.Events, e)
		return err
	}
	return a.headed.take(f)
}

// event is a change of a key.
type event struct {
	Deleted bool
	KV      keyValue
}

func (e *event) take(f field) error {
	switch f.id {
	case 1:
		e.Deleted = f.number == 1
	case 2:
		return decode(f.bytes, &e.KV)
	}
	return nil
}

// credentials ask for a token.
type credentials struct{ Name, Password string }

func (c credentials) append(to []byte) []byte {
	return appendBytes(appendBytes(to, 1, []byte(c.Name)), 2, []byte(c.Password))
}

type tokenAnswer struct {
	headed
	Token string
}

func (a *tokenAnswer) take(f field) error {
	if f.id == 2 {
		a.Token = string(f.bytes)
	}
	return a.headed.take(f)
}

// authStatus says whether a cluster has authentication.
type authStatus struct {
	headed
	Enabled bool
}

func (a *authStatus) take(f field) error {
	if f.id == 2 {
		a.Enabled = f.number != 0
	}
	return a.headed.take(f)
}

// status is that of a member.
type status struct {
	headed
	Version     string
	Leader      uint64
	IsLearner   bool
	DBSize      int64
	DBSizeInUse int64
	DBSizeQuota int64 // since 3.6

	at string
}

func (s *status) take(f field) error {
	switch f.id {
	case 2:
		s.Version = string(f.bytes)
	case 3:
		s.DBSize = int64(f.number)
	case 4:
		s.Leader = f.number
	case 9:
		s.DBSizeInUse = int64(f.number)
	case 10:
		s.IsLearner = f.number != 0
	case 12:
		s.DBSizeQuota = int64(f.number)
	}
	return s.headed.take(f)
}

// memberList are the members that a cluster has.
type memberList struct {
	headed
	Members []listed
}

func (l *memberList) take(f field) error {
	if f.id == 2 {
		var m listed
		err := decode(f.bytes, &m)
		l.Members = append(l.Members, m)
		return err
	}
	return l.headed.take(f)
}

type listed struct {
	ID        uint64
	Name      string
	IsLearner bool
}

func (m *listed) take(f field) error {
	switch f.id {
	case 1:
		m.ID = f.number
	case 2:
		m.Name = string(f.bytes)
	case 5:
		m.IsLearner = f.number != 0
	}
	return nil
}

// alarmList are the alarms of a cluster that are active.
type alarmList struct {
	headed
	Alarms []alarm
}

func (l *alarmList) take(f field) error {
	if f.id == 2 {
		var a alarm
		err := decode(f.bytes, &a)
		l.Alarms = append(l.Alarms, a)
		return err
	}
	return l.headed.take(f)
}

// alarm is the kind of one.
type alarm uint64

// String is the name that etcd gives it.
func (a alarm) String() string {
	switch a {
	case 1:
		return "NOSPACE"
	case 2:
		return "CORRUPT"
	}
	return strconv.FormatUint(uint64(a), 10)
}

func (a *alarm) take(f field) error {
	if f.id == 2 {
		*a = alarm(f.number)
	}
	return nil
}
