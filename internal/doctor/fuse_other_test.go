//go:build !linux

package doctor_test

import "errors"

func mountFUSE(string, string) (unmount func(), err error) {
	return nil, errors.New("only Linux has the mounts of this test")
}
