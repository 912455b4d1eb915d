package driver_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// able is a Locker with all capabilities, which shows those in its field.
type able struct {
	driver.Locker
	driver.Waker
	driver.Queue
	driver.BatchRenewer
	driver.BatchReleaser
	driver.BatchInspector
	driver.Lister
	driver.Breaker
	driver.DataStore
	driver.Checker
	capabilities driver.Capabilities
}

func (a *able) Capabilities() driver.Capabilities { return a.capabilities }
func (a *able) Info() driver.Info                 { return driver.Info{Backend: "able", History: 3} }

// newAble makes a Locker with all capabilities. No method of it can be called, but those above.
func newAble(t *testing.T) *able {
	a := &able{}
	for i, v := 0, reflect.ValueOf(&a.capabilities).Elem(); i < v.NumField(); i++ {
		switch field := v.Field(i); {
		case reflect.TypeOf(a).Implements(field.Type()):
			field.Set(reflect.ValueOf(a))
		default:
			t.Fatalf("embed driver.%s in the able Locker, and teach Intercept this capability", v.Type().Field(i).Name)
		}
	}
	return a
}

func pass(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
	return next(ctx, call)
}

// have returns the names of the fields that are set.
func have(c driver.Capabilities) (names []string) {
	for i, v := 0, reflect.ValueOf(c); i < v.NumField(); i++ {
		if !v.Field(i).IsZero() {
			names = append(names, v.Type().Field(i).Name)
		}
	}
	return names
}

// An intercepted Locker has the capabilities of the Locker, whichever they are. A capability that Intercept
// does not know fails the test.
func TestInterceptKeepsTheCapabilities(t *testing.T) {
	all := newAble(t).capabilities
	fields := reflect.TypeFor[driver.Capabilities]().NumField()
	for subset := range 1 << fields {
		var some driver.Capabilities
		for i := range fields {
			if subset&(1<<i) != 0 {
				reflect.ValueOf(&some).Elem().Field(i).Set(reflect.ValueOf(all).Field(i))
			}
		}
		l := driver.Intercept(&able{capabilities: some}, pass)
		got := l.Capabilities()
		if fmt.Sprint(have(got)) != fmt.Sprint(have(some)) {
			t.Fatalf("of %v the intercepted Locker has %v", have(some), have(got))
		}
		if got != l.Capabilities() {
			t.Fatal("the capabilities are not constant")
		}
		for _, name := range have(got) {
			if reflect.ValueOf(got).FieldByName(name).Interface() == reflect.ValueOf(some).FieldByName(name).Interface() {
				t.Errorf("%s bypasses the interceptor", name)
			}
		}
	}
}

// methods calls do for each method that does I/O, of a Locker and of all its capabilities.
func methods(l driver.Locker, do func(name string, method reflect.Value)) {
	calls := func(v reflect.Value, of reflect.Type) {
		for i := range of.NumMethod() {
			if name := of.Method(i).Name; name != "Info" && name != "Capabilities" {
				do(name, v.MethodByName(name))
			}
		}
	}
	calls(reflect.ValueOf(l), reflect.TypeFor[driver.Locker]())
	capabilities := reflect.ValueOf(l.Capabilities())
	for i := range capabilities.NumField() {
		field := capabilities.Field(i)
		calls(field.Elem(), field.Type())
	}
}

// results calls a method with arguments that differ from zero, and returns what it returned, printed.
func results(method reflect.Value) (text string) {
	in := []reflect.Value{}
	for i := range method.Type().NumIn() {
		in = append(in, argument(method.Type().In(i)))
	}
	for _, out := range method.Call(in) {
		switch out.Kind() {
		case reflect.Func:
			text += fmt.Sprint(!out.IsNil(), ";")
			if out.Type().NumIn() == 0 {
				out.Call(nil) // stop
				continue
			}
			for r, err := range out.Seq2() { // that of List
				text += fmt.Sprint(r, err, ";")
			}
		default:
			text += fmt.Sprintf("%+v;", out)
		}
	}
	return text
}

func argument(of reflect.Type) reflect.Value {
	switch of {
	case reflect.TypeFor[context.Context]():
		return reflect.ValueOf(context.Background())
	case reflect.TypeFor[string]():
		return reflect.ValueOf("a name")
	case reflect.TypeFor[driver.WaiterID]():
		return reflect.ValueOf(driver.WaiterID("a waiter"))
	case reflect.TypeFor[uint64]():
		return reflect.ValueOf(uint64(7))
	case reflect.TypeFor[[]byte]():
		return reflect.ValueOf([]byte("data"))
	case reflect.TypeFor[[]string]():
		return reflect.ValueOf([]string{"a", "b"})
	case reflect.TypeFor[driver.Lease]():
		return reflect.ValueOf(driver.Lease{Name: "leased", Token: 3})
	case reflect.TypeFor[[]driver.Lease]():
		return reflect.ValueOf([]driver.Lease{{Name: "a"}, {Name: "b"}})
	case reflect.TypeFor[driver.Request]():
		return reflect.ValueOf(driver.Request{Name: "requested", TTL: time.Second})
	case reflect.TypeFor[driver.DataRevision]():
		return reflect.ValueOf(driver.DataRevision{Token: 3, Writes: 2})
	}
	if of.Kind() == reflect.Func {
		return reflect.MakeFunc(of, func([]reflect.Value) []reflect.Value { return nil })
	}
	return reflect.Zero(of)
}

// plain is a call without its functions.
func plain(c driver.Call) driver.Call {
	c.Wake, c.Yield, c.Report = nil, nil, nil
	return c
}

// Each method is a call with its arguments, which reach the Locker, and whose answer reaches the caller.
func TestInterceptedMethods(t *testing.T) {
	full := driver.Answer{
		Errs: []error{errors.New("first"), nil}, Lease: driver.Lease{Name: "granted"}, Record: driver.Record{Name: "read"},
		Records: []driver.Record{{Name: "one"}, {Name: "two"}}, Data: []byte("stored"), At: driver.DataRevision{Token: 9}, Stop: func() {},
	}
	for what, answer := range map[string]driver.Answer{"answers": full, "errors": {Err: errors.New("refused")}, "nothing": {}} {
		var reached, called driver.Call
		inner := driver.Intercept(newAble(t), func(_ context.Context, call driver.Call, _ driver.Next) driver.Answer {
			reached = call
			if call.Method == driver.MethodList && answer.Err == nil {
				for _, r := range answer.Records {
					call.Yield(r, nil)
				}
			}
			return answer
		})
		outer := driver.Intercept(inner, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			called = call
			return next(ctx, call)
		})
		seen := map[string]string{}
		methods(inner, func(name string, method reflect.Value) { seen[name] = results(method) })
		methods(outer, func(name string, method reflect.Value) {
			reached, called = driver.Call{}, driver.Call{}
			got := results(method)
			if string(called.Method) != name || !reflect.DeepEqual(plain(called), plain(reached)) {
				t.Errorf("%s: %s is the call %+v, and %+v of the Locker", what, name, plain(called), plain(reached))
			}
			if got != seen[name] {
				t.Errorf("%s: %s returned %s, want %s", what, name, got, seen[name])
			}
			for i := range method.Type().NumIn() {
				if in := method.Type().In(i); in.Kind() != reflect.Func && in.Kind() != reflect.Interface && !contains(called, argument(in)) {
					t.Errorf("%s: the call of %s lacks its argument %v", what, name, argument(in))
				}
			}
		})
	}
}

func contains(c driver.Call, argument reflect.Value) bool {
	for i, v := 0, reflect.ValueOf(c); i < v.NumField(); i++ {
		if reflect.DeepEqual(v.Field(i).Interface(), argument.Interface()) {
			return true
		}
	}
	return false
}

// A fault for all calls reaches each lock of a batch, and the end of a list.
func TestInterceptedErrors(t *testing.T) {
	broken := errors.New("broken")
	l := driver.Intercept(newAble(t), func(context.Context, driver.Call, driver.Next) driver.Answer { return driver.Answer{Err: broken} })
	can := l.Capabilities()
	renewed, errs := can.BatchRenewer.RenewBatch(t.Context(), make([]driver.Lease, 2))
	if len(renewed) != 2 || len(errs) != 2 {
		t.Errorf("RenewBatch: %v, %v", renewed, errs)
	}
	for _, err := range errs {
		if !errors.Is(err, broken) {
			t.Errorf("RenewBatch: %v", err)
		}
	}
	var records []driver.Record
	records, errs = can.BatchInspector.InspectBatch(t.Context(), "", []string{"a", "b"})
	if len(records) != 2 || len(errs) != 2 || !errors.Is(errs[1], broken) {
		t.Errorf("InspectBatch: %v, %v", records, errs)
	}
	n := 0
	for _, err := range can.Lister.List(t.Context(), "") {
		n++
		if !errors.Is(err, broken) {
			t.Errorf("List: %v", err)
		}
	}
	if n != 1 {
		t.Errorf("List yielded %d errors, want 1", n)
	}
	if err := can.Queue.Leave(t.Context(), "w", []string{"a"}); !errors.Is(err, broken) {
		t.Errorf("Leave: %v", err)
	}
	can.Waker.Wake("a", "w", func(driver.Wakeup) {})()
}

// A list that the caller has left is not continued, whatever the interceptor does.
func TestInterceptedListEnds(t *testing.T) {
	l := driver.Intercept(newAble(t), func(_ context.Context, call driver.Call, _ driver.Next) driver.Answer {
		for range 3 {
			call.Yield(driver.Record{Name: "a"}, nil)
		}
		return driver.Answer{Err: errors.New("interrupted")}
	})
	n := 0
	for _, err := range l.Capabilities().Lister.List(t.Context(), "") {
		n++
		if err != nil {
			t.Error(err)
		}
		break
	}
	if n != 1 {
		t.Errorf("%d records", n)
	}
}

// What a Locker offers beyond the interface is there, too.
func TestInterceptedIsTransparent(t *testing.T) {
	inner := newAble(t)
	l := driver.Intercept(inner, pass)
	if l.Info() != inner.Info() {
		t.Errorf("it declares %+v", l.Info())
	}
	if u, ok := l.(interface{ Unwrap() driver.Locker }); !ok || u.Unwrap() != driver.Locker(inner) {
		t.Error("Unwrap does not return the Locker")
	}
	if missing, err := driver.MissingStore(t.Context(), l); missing != "" || err != nil {
		t.Errorf("MissingStore: %q, %v", missing, err)
	}
	missing := driver.Intercept(storeless{inner}, pass)
	if what, err := driver.MissingStore(t.Context(), missing); what != "a folder" || err != nil {
		t.Errorf("MissingStore: %q, %v", what, err)
	}
	if driver.Intercept(inner, nil) != driver.Locker(inner) || driver.Intercept(nil, pass) != nil {
		t.Error("without an interceptor or a Locker there is nothing to intercept")
	}
}

type storeless struct{ driver.Locker }

func (storeless) MissingStore(context.Context) (string, error) { return "a folder", nil }

// The lease that a call concerns.
func TestConcerned(t *testing.T) {
	id := driver.NewLeaseID("5b7cbe24-6a0f-4f5e-9a55-3d6f2b6f1f00")
	want := driver.Lease{Name: "a", ID: id, Mode: driver.Shared}
	for _, c := range []driver.Call{
		{Method: driver.MethodTryAcquire, Request: driver.Request{Name: "a", ID: id, Mode: driver.Shared}},
		{Method: driver.MethodRenew, Lease: want}, {Method: driver.MethodRelease, Lease: want}, {Method: driver.MethodWriteData, Lease: want},
	} {
		if got := c.Concerned(); got != want {
			t.Errorf("%s concerns %v", c.Method, got)
		}
	}
	if got := (driver.Call{Method: driver.MethodBreak, Name: "a"}).Concerned(); got != (driver.Lease{Name: "a"}) {
		t.Errorf("Break concerns %v", got)
	}
	if got := (driver.Call{Method: driver.MethodList, Name: "prefix"}).Concerned(); got != (driver.Lease{}) {
		t.Errorf("List concerns %v", got)
	}
}

// A call that is passed on allocates nothing.
func TestInterceptAllocatesNothing(t *testing.T) {
	answers := driver.Intercept(newAble(t), func(context.Context, driver.Call, driver.Next) driver.Answer { return driver.Answer{} })
	l := driver.Intercept(answers, pass)
	lease := driver.Lease{Name: "a"}
	if n := testing.AllocsPerRun(100, func() { _, _ = l.Renew(context.Background(), lease) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
