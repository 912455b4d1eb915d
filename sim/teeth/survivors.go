package main

// survived says why a generated fault breaks nothing, or what it costs.
var survived = map[string]string{
	"internal/engine/attempt.go, noteRefusal: one of both is enough: held != nil && held.Record.Broken && t.inDoubt.any": "a request in doubt is cleaned up at the first refusal, instead of being repeated with its ID; that is as safe, and costs releases",
	"internal/engine/attempt.go, afterExpiry: also if equal: t.position > driver.WokenWaiters":                           "at an expiry the second waiter comes 100 ms later, which matters only if the first is dead",
}
