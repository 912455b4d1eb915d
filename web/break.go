package web

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast"
)

// maxBreakRequest and readTimeout bound the body of a request to break.
const (
	maxBreakRequest = 8 << 10
	readTimeout     = 10 * time.Second
)

// breakLock breaks the lease of one holder. The lock becomes free when the lease ends; the page
// cannot free it sooner, since two holders could then be at work. A lease that never ends is over at once.
func (h *Handler) breakLock(w http.ResponseWriter, r *http.Request) {
	log := h.options.Logger.With("client", r.RemoteAddr)
	if h.options.User != nil {
		log = log.With("user", h.options.User(r))
	}
	switch {
	case !h.mayBreak(r):
		log.Warn("holdfast: refused to break a lock: not allowed")
		fail(w, http.StatusForbidden, "you may not break locks")
		return
	case !h.hasToken(r):
		log.Warn("holdfast: refused to break a lock: the request does not come from the page")
		fail(w, http.StatusForbidden, "the request does not come from this page: reload it")
		return
	}
	var request struct {
		Name    string `json:"name"`
		Token   string `json:"token"`   // of the holder that was shown
		Unknown bool   `json:"unknown"` // the holder that was shown has no token
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTimeout)) // not every server can
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBreakRequest))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&request); err != nil {
		fail(w, http.StatusBadRequest, "the request is no JSON object with name and token, or name and unknown")
		return
	}
	var target holdfast.BreakTarget
	token, err := strconv.ParseUint(request.Token, 10, 64)
	switch {
	case request.Unknown && request.Token == "":
		target = holdfast.BreakUnknown()
	case !request.Unknown && err == nil:
		target = holdfast.BreakToken(token)
	}
	if target == (holdfast.BreakTarget{}) {
		fail(w, http.StatusBadRequest, "the holder's token, or unknown, is missing: only a holder that was shown can be broken")
		return
	}
	if !h.shown(request.Name) {
		fail(w, http.StatusNotFound, errNotShown.Error())
		return
	}
	log = log.With("lock", request.Name, "token", token)
	if request.Unknown {
		log = log.With("unknown", true)
	}
	err = h.client.Break(r.Context(), request.Name, target)
	var held *holdfast.HeldError
	switch {
	case errors.As(err, &held):
		log.Warn("holdfast: refused to break a lock: another holds it now")
		fail(w, http.StatusConflict, "another holds the lock now; nothing was broken")
	case err != nil:
		log.Error("holdfast: could not break a lock", "error", err)
		failBackend(w, err)
	default:
		log.Warn("holdfast: a lock was broken from the page")
		writeJSON(w, http.StatusOK, map[string]bool{"broken": true})
	}
}
