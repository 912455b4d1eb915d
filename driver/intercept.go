package driver

import (
	"context"
	"iter"
	"slices"
)

// Method names a method of a [Locker] or of a capability.
type Method string

// The methods that [Intercept] intercepts. Others may be added.
const (
	MethodTryAcquire   Method = "TryAcquire"
	MethodRenew        Method = "Renew"
	MethodRenewBatch   Method = "RenewBatch"
	MethodRelease      Method = "Release"
	MethodReleaseBatch Method = "ReleaseBatch"
	MethodInspect      Method = "Inspect"
	MethodInspectBatch Method = "InspectBatch"
	MethodList         Method = "List"
	MethodWake         Method = "Wake"
	MethodLeave        Method = "Leave"
	MethodBreak        Method = "Break"
	MethodBreakNow     Method = "BreakNow"
	MethodReadData     Method = "ReadData"
	MethodWriteData    Method = "WriteData"
	MethodCheck        Method = "Check"
	MethodRemoveProbe  Method = "RemoveProbe"
	MethodMissingStore Method = "MissingStore"
	MethodClose        Method = "Close"
)

// Call is one call of a method, with the arguments that the method has. The other fields are zero.
type Call struct {
	Method  Method
	Name    string  // a lock's name; the prefix of List. Methods with a Request or a Lease have the name there
	Request Request // of TryAcquire
	Lease   Lease   // of Renew, Release and WriteData
	Leases  []Lease
	Names   []string
	Target  BreakTarget // of Break and BreakNow
	Data    []byte
	At      DataRevision
	Waiter  WaiterID                       // of Wake, Leave and InspectBatch
	Wake    func(Wakeup)                   // of Wake
	Yield   func(r Record, err error) bool // takes what List yields
	Report  func(Finding)
}

// Concerned returns what the call says about the lease that it asks for, renews or releases, and only
// the name for other calls about one lock. For the rest it is zero.
func (c Call) Concerned() Lease {
	switch r := c.Request; c.Method {
	case MethodTryAcquire:
		return Lease{Name: r.Name, ID: r.ID, Owner: r.Owner, TTL: r.TTL, Mode: r.Mode}
	case MethodRenew, MethodRelease, MethodWriteData:
		return c.Lease
	case MethodList:
		return Lease{}
	default:
		return Lease{Name: c.Name}
	}
}

// Answer is what a call returns: the results that its method has. The other fields are zero.
type Answer struct {
	// Err is the error of the call. A batch has Errs instead, and List yields its errors. If Err is set
	// all the same, each lock of the batch has this error, or List ends with it. Wake has none.
	Err     error
	Errs    []error // of a batch
	Lease   Lease   // of TryAcquire and Renew
	Leases  []Lease // of RenewBatch
	Record  Record
	Records []Record
	Data    []byte
	At      DataRevision
	Missing string // of MissingStore
	Stop    func() // of Wake; nil stands for a function that does nothing
}

// Next makes a call of the Locker that was intercepted. It may be called any number of times, also later.
type Next func(ctx context.Context, call Call) Answer

// Intercept returns a Locker that calls around in place of each method of l and of its capabilities
// that does I/O or may do so. around makes the call with next, or answers by itself. It may change the
// arguments and the answer, but not the Method. Wake has no context: its is that of
// [context.Background].
//
// The Locker has exactly the capabilities of l, and the same Info. It has a method Unwrap,
// which returns l. Intercept knows all capabilities, so that other code that wraps a Locker need not list
// them. With a nil around it returns l.
func Intercept(l Locker, around func(ctx context.Context, call Call, next Next) Answer) Locker {
	if l == nil || around == nil {
		return l
	}
	i := &intercepted{inner: l, had: l.Capabilities(), around: around}
	i.next = i.forward // once, so that a call allocates nothing
	return i
}

// intercepted is a Locker, and all its capabilities.
type intercepted struct {
	inner  Locker
	had    Capabilities
	around func(context.Context, Call, Next) Answer
	next   Next
}

// Capabilities has those of the Locker that was intercepted. A test fails if one is missing here.
func (i *intercepted) Capabilities() Capabilities {
	var c Capabilities
	if i.had.Waker != nil {
		c.Waker = i
	}
	if i.had.Queue != nil {
		c.Queue = i
	}
	if i.had.BatchRenewer != nil {
		c.BatchRenewer = i
	}
	if i.had.BatchReleaser != nil {
		c.BatchReleaser = i
	}
	if i.had.BatchInspector != nil {
		c.BatchInspector = i
	}
	if i.had.Lister != nil {
		c.Lister = i
	}
	if i.had.Breaker != nil {
		c.Breaker = i
	}
	if i.had.DataStore != nil {
		c.DataStore = i
	}
	if i.had.Checker != nil {
		c.Checker = i
	}
	return c
}

// forward makes a call.
func (i *intercepted) forward(ctx context.Context, c Call) (a Answer) {
	switch c.Method {
	case MethodTryAcquire:
		a.Lease, a.Err = i.inner.TryAcquire(ctx, c.Request)
	case MethodRenew:
		a.Lease, a.Err = i.inner.Renew(ctx, c.Lease)
	case MethodRenewBatch:
		a.Leases, a.Errs = i.had.BatchRenewer.RenewBatch(ctx, c.Leases)
	case MethodRelease:
		a.Err = i.inner.Release(ctx, c.Lease)
	case MethodReleaseBatch:
		a.Errs = i.had.BatchReleaser.ReleaseBatch(ctx, c.Leases)
	case MethodInspect:
		a.Record, a.Err = i.inner.Inspect(ctx, c.Name)
	case MethodInspectBatch:
		a.Records, a.Errs = i.had.BatchInspector.InspectBatch(ctx, c.Waiter, c.Names)
	case MethodList:
		i.had.Lister.List(ctx, c.Name)(c.Yield)
	case MethodWake:
		a.Stop = i.had.Waker.Wake(c.Name, c.Waiter, c.Wake)
	case MethodLeave:
		a.Err = i.had.Queue.Leave(ctx, c.Waiter, c.Names)
	case MethodBreak:
		a.Err = i.had.Breaker.Break(ctx, c.Name, c.Target)
	case MethodBreakNow:
		a.Err = i.had.Breaker.BreakNow(ctx, c.Name, c.Target)
	case MethodReadData:
		a.Data, a.At, a.Err = i.had.DataStore.ReadData(ctx, c.Name)
	case MethodWriteData:
		a.Err = i.had.DataStore.WriteData(ctx, c.Lease, c.Data, c.At)
	case MethodCheck:
		a.Err = i.had.Checker.Check(ctx, c.Report)
	case MethodRemoveProbe:
		a.Err = i.had.Checker.RemoveProbe(ctx, c.Name)
	case MethodMissingStore:
		a.Missing, a.Err = MissingStore(ctx, i.inner)
	case MethodClose:
		a.Err = i.inner.Close(ctx)
	default:
		a.Err = Errorf("there is no method %q to call", c.Method)
	}
	return a
}

func (i *intercepted) call(ctx context.Context, c Call) Answer { return i.around(ctx, c, i.next) }

func (i *intercepted) Info() Info     { return i.inner.Info() }
func (i *intercepted) Unwrap() Locker { return i.inner }

func (i *intercepted) TryAcquire(ctx context.Context, req Request) (Lease, error) {
	a := i.call(ctx, Call{Method: MethodTryAcquire, Request: req})
	return a.Lease, a.Err
}

func (i *intercepted) Renew(ctx context.Context, l Lease) (Lease, error) {
	a := i.call(ctx, Call{Method: MethodRenew, Lease: l})
	return a.Lease, a.Err
}

func (i *intercepted) RenewBatch(ctx context.Context, leases []Lease) ([]Lease, []error) {
	a := i.call(ctx, Call{Method: MethodRenewBatch, Leases: leases})
	if a.Err != nil {
		a.Leases = leases
	}
	return a.Leases, a.each(len(leases))
}

func (i *intercepted) Release(ctx context.Context, l Lease) error {
	return i.call(ctx, Call{Method: MethodRelease, Lease: l}).Err
}

func (i *intercepted) ReleaseBatch(ctx context.Context, leases []Lease) []error {
	return i.call(ctx, Call{Method: MethodReleaseBatch, Leases: leases}).each(len(leases))
}

func (i *intercepted) Inspect(ctx context.Context, name string) (Record, error) {
	a := i.call(ctx, Call{Method: MethodInspect, Name: name})
	return a.Record, a.Err
}

func (i *intercepted) InspectBatch(ctx context.Context, waiter WaiterID, names []string) ([]Record, []error) {
	a := i.call(ctx, Call{Method: MethodInspectBatch, Waiter: waiter, Names: names})
	if a.Err != nil {
		a.Records = make([]Record, len(names))
	}
	return a.Records, a.each(len(names))
}

// each returns the errors of a batch of n locks.
func (a Answer) each(n int) []error {
	if a.Err != nil {
		return slices.Repeat([]error{a.Err}, n)
	}
	return a.Errs
}

func (i *intercepted) List(ctx context.Context, prefix string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		more := true
		a := i.call(ctx, Call{Method: MethodList, Name: prefix, Yield: func(r Record, err error) bool {
			more = more && yield(r, err)
			return more
		}})
		if a.Err != nil && more {
			yield(Record{}, a.Err)
		}
	}
}

func (i *intercepted) Wake(name string, waiter WaiterID, wake func(Wakeup)) (stop func()) {
	return i.call(context.Background(), Call{Method: MethodWake, Name: name, Waiter: waiter, Wake: wake}).stop()
}

func (i *intercepted) Leave(ctx context.Context, waiter WaiterID, names []string) error {
	return i.call(ctx, Call{Method: MethodLeave, Waiter: waiter, Names: names}).Err
}

func (a Answer) stop() func() {
	if a.Stop == nil {
		return func() {}
	}
	return a.Stop
}

func (i *intercepted) Break(ctx context.Context, name string, target BreakTarget) error {
	return i.call(ctx, Call{Method: MethodBreak, Name: name, Target: target}).Err
}

func (i *intercepted) BreakNow(ctx context.Context, name string, target BreakTarget) error {
	return i.call(ctx, Call{Method: MethodBreakNow, Name: name, Target: target}).Err
}

func (i *intercepted) ReadData(ctx context.Context, name string) ([]byte, DataRevision, error) {
	a := i.call(ctx, Call{Method: MethodReadData, Name: name})
	return a.Data, a.At, a.Err
}

func (i *intercepted) WriteData(ctx context.Context, l Lease, data []byte, at DataRevision) error {
	return i.call(ctx, Call{Method: MethodWriteData, Lease: l, Data: data, At: at}).Err
}

func (i *intercepted) Check(ctx context.Context, report func(Finding)) error {
	return i.call(ctx, Call{Method: MethodCheck, Report: report}).Err
}

func (i *intercepted) RemoveProbe(ctx context.Context, name string) error {
	return i.call(ctx, Call{Method: MethodRemoveProbe, Name: name}).Err
}

// MissingStore is not a call if the Locker has no such method.
func (i *intercepted) MissingStore(ctx context.Context) (string, error) {
	if _, has := i.inner.(storeFinder); !has {
		return "", nil
	}
	a := i.call(ctx, Call{Method: MethodMissingStore})
	return a.Missing, a.Err
}

func (i *intercepted) Close(ctx context.Context) error {
	return i.call(ctx, Call{Method: MethodClose}).Err
}
