package app

import "net/http"

// attachments shows the attachment report of a session, running or not
// (specification A-20): without one there is nothing to show, and nothing is made
// up from the configuration.
func (s *sessionAPI) attachments(r *http.Request) (any, error) {
	m, err := s.meta(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return s.agents.Report(r.Context(), m.ID)
}
