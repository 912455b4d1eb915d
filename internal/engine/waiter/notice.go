package waiter

import "time"

// A caller that waits says so in the log: after noticeAfter, and when the holder has changed. Short
// waits are not worth a line.
const (
	noticeAfter = time.Second
	noticeAgain = 2 * time.Second // between two notices of one caller
)

// notice is what the log says of a wait.
type notice struct {
	began, next time.Duration
	logged      bool
	owner       string
	token       uint64
}

// awaited returns the holder that the caller waits for, as far as it is known. With slots it waits for
// any of several holders, and none is named.
func (w *Waiter) awaited() (owner string, token uint64) {
	if len(w.slots) > 1 {
		return "", 0
	}
	return w.slots[0].owner, w.slots[0].ownerToken
}

// NoticeAt is when the next notice is due unless the holder changes.
func (w *Waiter) NoticeAt() time.Duration {
	if w.Retrying() { // nobody knows whether another holds the lock
		return Never
	}
	owner, token := w.awaited()
	if n := &w.notice; n.logged && n.owner == owner && n.token == token {
		return Never
	}
	return w.notice.next
}

// Notice calls log, if a notice is due, with the holder and for how long the caller has waited. log
// reports whether it has logged that, or left it out because of the notices of others.
func (w *Waiter) Notice(now time.Duration, log func(owner string, token uint64, waited time.Duration) bool) {
	if now < w.NoticeAt() {
		return
	}
	n := &w.notice
	n.next = now + noticeAgain
	if owner, token := w.awaited(); log(owner, token, now-n.began) {
		n.logged, n.owner, n.token = true, owner, token
	}
}
