package mongo

// Fields of a lock's record.
const (
	fieldKid    = "kid"
	fieldBroken = "broken"
)
