package feedserver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/internal/logattr"
)

const (
	topicsTime    = 10 * time.Second
	maxTicketBody = 64 << 10
)

// serveTopics lists the topics that the caller may read.
func (s *Server) serveTopics(w http.ResponseWriter, r *http.Request) {
	if err := httpserver.CheckQuery(r, nil); err != nil {
		s.refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), topicsTime)
	defer cancel()
	all, err := s.topics.Topics(ctx)
	if err != nil {
		s.log.WarnContext(ctx, "topics cannot be listed", logattr.Err(err))
		s.refuseForNow(w, "the log cannot be read now; try again in a moment")
		return
	}
	p, known := httpserver.PrincipalOf(r.Context())
	list := struct {
		Topics []feed.Topic `json:"topics"`
	}{[]feed.Topic{}}
	for _, t := range all {
		if !known || p.Rights.MayRead(t.Name) {
			list.Topics = append(list.Topics, t)
		}
	}
	s.answer(w, list)
}

// serveTicket gives out a ticket.
func (s *Server) serveTicket(w http.ResponseWriter, r *http.Request) {
	p, known := httpserver.PrincipalOf(r.Context())
	if !known {
		s.refuse(w, http.StatusConflict, "nobody is asked for a token here, so there are no tickets; leave them out")
		return
	}
	if err := httpserver.CheckQuery(r, nil); err != nil {
		s.refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxTicketBody))
	if err != nil {
		s.refuse(w, http.StatusRequestEntityTooLarge, "the body is too large; name fewer topics")
		return
	}
	var want struct {
		Topics []string `json:"topics"`
	}
	if len(b) > 0 {
		if err := jsonv2.Unmarshal(b, &want, jsonv2.RejectUnknownMembers(true)); err != nil {
			s.refuse(w, http.StatusBadRequest, `the body is {"topics": [...]}, or empty for all that you may read`)
			return
		}
	}
	if _, err := feed.ParseFilter(want.Topics...); err != nil {
		s.refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	for _, pattern := range want.Topics {
		if !p.Rights.MayReadAll(pattern) {
			s.refuse(w, http.StatusForbidden, mayNotRead(pattern))
			return
		}
	}
	ticket, expires, err := s.o.Tickets.Issue(p, want.Topics)
	switch {
	case errors.Is(err, access.ErrTooManyTopics):
		s.refuse(w, http.StatusRequestEntityTooLarge, "the rights do not fit into a ticket; name fewer topics")
	case err != nil:
		s.log.ErrorContext(r.Context(), "a ticket cannot be made", logattr.Err(err))
		s.refuse(w, http.StatusInternalServerError, "a ticket cannot be made")
	default:
		s.answer(w, struct {
			Ticket  string    `json:"ticket"`
			Expires time.Time `json:"expires"`
		}{ticket, expires})
	}
}

// answer writes JSON.
func (s *Server) answer(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		s.log.Error("an answer cannot be encoded", logattr.Err(err))
		s.refuse(w, http.StatusInternalServerError, "the answer cannot be encoded")
		return
	}
	jsonHead(w)
	_, _ = w.Write(append(b, '\n'))
}
