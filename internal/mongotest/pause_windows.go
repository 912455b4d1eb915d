package mongotest

import "errors"

var errPause = errors.New("a process cannot be paused on Windows")

func (p *process) pause() error  { return errPause }
func (p *process) resume() error { return errPause }
