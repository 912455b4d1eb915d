package blob

type (
	AccessConditions struct{}
	Client           struct{}
)
