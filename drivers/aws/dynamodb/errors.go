package dynamodb

import (
	"github.com/holdfast-go/holdfast/driver"
)

// rights are what locks need on the table.
const rights = "dynamodb:GetItem, dynamodb:PutItem, dynamodb:BatchGetItem, dynamodb:Scan and dynamodb:DescribeTable"

func connectError(err error) error {
	if err == nil {
		return nil
	}
	return &driver.OpError{Op: "connect", Backend: backend, Err: err}
}
