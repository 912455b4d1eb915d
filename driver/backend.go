package driver

// BackendOf returns what a Locker calls its backend in its errors, such as "mongodb", if it has a method
// Backend that says so, and else "unknown".
func BackendOf(l Locker) string {
	if b, ok := l.(interface{ Backend() string }); ok {
		return b.Backend()
	}
	return "unknown"
}
