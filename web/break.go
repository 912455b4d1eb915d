package web

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
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

// foreign says why a request seems not to come from this page, and what helps. A form or script of another site can send neither
// the header nor the token. A browser that reads the page by plain HTTP under a name does not say where a request comes from
// (Sec-Fetch-Site), so its Origin is compared with the Host, which a proxy may have replaced.
func (h *Handler) foreign(r *http.Request) string {
	switch err := h.origin.Check(r); {
	case err != nil && r.Header.Get("Sec-Fetch-Site") != "":
		return "the request comes from another site: use the page itself"
	case err != nil:
		return fmt.Sprintf("the browser asked %.200q, and the request came with the host %.200q: let the proxy in front of this page keep "+
			"the Host header, or serve the site by HTTPS", r.Header.Get("Origin"), r.Host)
	case subtle.ConstantTimeCompare([]byte(r.Header.Get("X-Holdfast-Token")), []byte(h.token)) != 1:
		return "the request does not have the secret of this page: reload it; if several servers share this address, send each reader " +
			"to the same one"
	}
	return ""
}

// breakLock breaks the lease of one holder. The lock becomes free when the lease ends; the page
// cannot free it sooner, since two holders could then be at work. A lease that never ends is over at once.
func (h *Handler) breakLock(w http.ResponseWriter, r *http.Request) {
	log := h.options.Logger.With("client", r.RemoteAddr)
	if h.options.User != nil {
		log = log.With("user", h.options.User(r))
	}
	if !h.mayBreak(r) {
		log.Warn("holdfast: refused to break a lock: not allowed")
		fail(w, http.StatusForbidden, "you may not break locks")
		return
	}
	if problem := h.foreign(r); problem != "" {
		log.Warn("holdfast: refused to break a lock: the request does not come from the page", "problem", problem)
		fail(w, http.StatusForbidden, problem)
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
