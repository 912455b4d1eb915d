package settings_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/settings"
	"github.com/holdfast-go/holdfast/internal/timing"
)

const forever = time.Duration(math.MaxInt64)

// azureLimits are those of an Azure blob lease.
var azureLimits = driver.Limits{MinTTL: 15 * time.Second, MaxTTL: time.Minute, TTLStep: time.Second, Poll: 10 * time.Second}

func TestDefaults(t *testing.T) {
	for name, tc := range map[string]struct {
		config        settings.Config
		limits        driver.Limits
		want          timing.Timing
		poll, watched time.Duration
	}{
		"none given": {
			want: timing.Timing{TTL: 30 * time.Second, Grace: 5 * time.Second, RenewEvery: 10 * time.Second, RequestTimeout: 3 * time.Second},
			poll: 5 * time.Second, watched: 20 * time.Second,
		},
		"TTL given": {
			config: settings.Config{TTL: settings.Given(time.Hour)},
			want:   timing.Timing{TTL: time.Hour, Grace: 10 * time.Minute, RenewEvery: 20 * time.Minute, RequestTimeout: 10 * time.Second},
			poll:   5 * time.Second, watched: 20 * time.Second,
		},
		"grace given": {
			config: settings.Config{Grace: settings.Given(10 * time.Second)},
			want:   timing.Timing{TTL: 30 * time.Second, Grace: 10 * time.Second, RenewEvery: 10 * time.Second, RequestTimeout: 6 * time.Second},
			poll:   5 * time.Second, watched: 20 * time.Second,
		},
		"poll interval given": {
			config: settings.Config{Poll: settings.Given(time.Second)},
			limits: azureLimits,
			want:   timing.Timing{TTL: 30 * time.Second, Grace: 5 * time.Second, RenewEvery: 10 * time.Second, RequestTimeout: 3 * time.Second},
			poll:   time.Second, watched: time.Second,
		},
		"backend with a poll interval": {
			limits: azureLimits,
			want:   timing.Timing{TTL: 30 * time.Second, Grace: 5 * time.Second, RenewEvery: 10 * time.Second, RequestTimeout: 3 * time.Second},
			poll:   10 * time.Second, watched: 20 * time.Second,
		},
		"backend with short TTLs": {
			limits: driver.Limits{MaxTTL: 12500 * time.Millisecond, TTLStep: time.Second},
			want: timing.Timing{TTL: 12 * time.Second, Grace: 2 * time.Second, RenewEvery: 4 * time.Second,
				RequestTimeout: 1200 * time.Millisecond},
			poll: 5 * time.Second, watched: 20 * time.Second,
		},
		"backend with long TTLs": {
			limits: driver.Limits{MinTTL: time.Minute},
			want:   timing.Timing{TTL: time.Minute, Grace: 10 * time.Second, RenewEvery: 20 * time.Second, RequestTimeout: 6 * time.Second},
			poll:   5 * time.Second, watched: 20 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := tc.config.Resolve(tc.limits)
			if err != nil {
				t.Fatal(err)
			}
			if s.Timing != tc.want {
				t.Errorf("timing %+v, want %+v", s.Timing, tc.want)
			}
			if s.Poll != tc.poll || s.WatchedPoll != tc.watched || s.Slots != 1 {
				t.Errorf("poll intervals %v and %v, %d slots; want %v, %v, 1", s.Poll, s.WatchedPoll, s.Slots, tc.poll, tc.watched)
			}
		})
	}
}

func TestInvalidSettings(t *testing.T) {
	none, many := 0, 1001
	for name, tc := range map[string]struct {
		config settings.Config
		field  string
		rule   string
	}{
		"TTL too short":         {settings.Config{TTL: settings.Given(time.Second)}, "TTL", "from 15s to 1m in steps of 1s"},
		"TTL zero":              {settings.Config{TTL: settings.Given(0)}, "TTL", "from 15s"},
		"grace zero":            {settings.Config{Grace: settings.Given(0)}, "Grace", "more than 0"},
		"grace below the drift": {settings.Config{Grace: settings.Given(29 * time.Millisecond)}, "Grace", "at least 30ms, the clock drift"},
		"grace as long as TTL":  {settings.Config{Grace: settings.Given(30 * time.Second)}, "Grace", "less than the TTL of 30s"},
		"grace forever":         {settings.Config{Grace: settings.Given(forever)}, "Grace", "less than the TTL of 30s"},
		"request timeout": {settings.Config{RequestTimeout: settings.Given(5 * time.Second)}, "RequestTimeout",
			"less than the grace of 5s"},
		"renewal too late":       {settings.Config{RenewEvery: settings.Given(22*time.Second + 1)}, "RenewEvery", "at most 22s"},
		"poll interval negative": {settings.Config{Poll: settings.Given(-1)}, "PollInterval", "more than 0"},
		"no slots":               {settings.Config{Slots: &none}, "Slots", "from 1 to 1000"},
		"too many slots":         {settings.Config{Slots: &many}, "Slots", "from 1 to 1000"},
		"observer nil":           {settings.Config{Observers: []*event.Observer{nil}}, "observer", "a function"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tc.config.Resolve(azureLimits)
			var invalid *driver.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != tc.field || !strings.Contains(err.Error(), tc.rule) {
				t.Errorf("%v; want field %s and rule %q", err, tc.field, tc.rule)
			}
		})
	}
}

// Settings exactly at a limit are valid.
func TestLimitsOfSettingsAreAllowed(t *testing.T) {
	slots := 1000
	for name, config := range map[string]settings.Config{
		"grace":           {Grace: settings.Given(30 * time.Millisecond)},
		"renewal":         {RenewEvery: settings.Given(22 * time.Second)},
		"request timeout": {RequestTimeout: settings.Given(5*time.Second - 1)},
		"slots":           {Slots: &slots},
		"poll interval":   {Poll: settings.Given(forever)},
	} {
		if _, err := config.Resolve(azureLimits); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOptional(t *testing.T) {
	for _, tc := range []struct {
		given settings.Optional
		want  time.Duration
	}{
		{settings.Optional{}, time.Minute},
		{settings.Given(0), 0},
		{settings.Given(time.Second), time.Second},
		{settings.Given(forever), driver.MaxTTL},
	} {
		if got := tc.given.Or(time.Minute); got != tc.want {
			t.Errorf("%v (set: %v) or a minute is %v, want %v", tc.given, tc.given.Set, got, tc.want)
		}
	}
}

func TestBackoffCheck(t *testing.T) {
	for _, tc := range []struct {
		backoff settings.Backoff
		valid   bool
	}{
		{settings.Backoff{Initial: time.Second, Max: time.Minute}, true},
		{settings.Backoff{Initial: time.Second, Max: time.Second}, true},
		{settings.Backoff{Initial: time.Minute, Max: time.Second}, false},
		{settings.Backoff{Max: time.Second}, false},
	} {
		if err := tc.backoff.Check(); (err == nil) != tc.valid || err != nil && !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%+v: %v", tc.backoff, err)
		}
	}
}

func TestWithoutSlots(t *testing.T) {
	n := 3
	c := settings.Config{Slots: &n}
	if s, err := c.WithoutSlots().Resolve(driver.Limits{}); err != nil || s.Slots != 1 {
		t.Errorf("%d slots, %v", s.Slots, err)
	}
	if c.Slots == nil {
		t.Error("the receiver was changed")
	}
}

// What an option sets reaches the settings, each field by itself.
func TestEveryOptionReachesTheSettings(t *testing.T) {
	owner, slots := "me", 2
	all := reflect.ValueOf(settings.Config{TTL: settings.Given(20 * time.Second), Grace: settings.Given(4 * time.Second),
		RenewEvery: settings.Given(5 * time.Second), RequestTimeout: settings.Given(time.Second), Poll: settings.Given(2 * time.Second),
		Slots: &slots, Shared: true, Owner: &owner, Data: []byte("x"), Overrun: func(event.Event) {},
		Observers: []*event.Observer{event.NewObserver(func(event.Event) {})}})
	none, err := settings.Config{}.Resolve(driver.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range all.NumField() {
		var one settings.Config
		reflect.ValueOf(&one).Elem().Field(i).Set(all.Field(i))
		got, err := one.Resolve(driver.Limits{})
		if name := all.Type().Field(i).Name; all.Field(i).IsZero() {
			t.Errorf("this test does not set %s", name)
		} else if err != nil || fmt.Sprintf("%+v", got) == fmt.Sprintf("%+v", none) {
			t.Errorf("%s is lost: %+v, %v", name, got, err)
		}
	}
}
