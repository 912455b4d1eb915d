package bson

type (
	E struct {
		Key   string
		Value any
	}
	D []E
	M map[string]any
	A []any
)
