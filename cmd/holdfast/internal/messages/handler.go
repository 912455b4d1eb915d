package messages

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
)

// Handler returns where drivers log: each record becomes a line like those of the command itself, which no reader can hold up. With
// --quiet only warnings are written.
func (l *Log) Handler() slog.Handler { return handler{log: l} }

type handler struct {
	log    *Log
	attrs  string // of all records, each after a space
	groups string // before each key
}

// Enabled implements [slog.Handler].
func (h handler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn || level >= slog.LevelInfo && !h.log.quiet
}

// Handle implements [slog.Handler].
func (h handler) Handle(_ context.Context, r slog.Record) error {
	attrs := h.attrs
	r.Attrs(func(a slog.Attr) bool {
		attrs += h.text(a)
		return true
	})
	if attrs != "" {
		attrs = " (" + strings.TrimPrefix(attrs, " ") + ")"
	}
	h.log.write(true, "%s%s", r.Message, attrs)
	return nil
}

// WithAttrs implements [slog.Handler].
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		h.attrs += h.text(a)
	}
	return h
}

// WithGroup implements [slog.Handler].
func (h handler) WithGroup(name string) slog.Handler {
	if name != "" {
		h.groups += name + "."
	}
	return h
}

func (h handler) text(a slog.Attr) (text string) {
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		inner := h
		if a.Key != "" {
			inner.groups += a.Key + "."
		}
		for _, a := range value.Group() {
			text += inner.text(a)
		}
		return text
	}
	if a.Key == "" && value.Any() == nil {
		return ""
	}
	shown := value.String()
	if shown == "" || strings.ContainsAny(shown, " \"=()\n") {
		shown = strconv.Quote(shown)
	}
	return " " + h.groups + a.Key + "=" + shown
}
