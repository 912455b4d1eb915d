package httpserver

// descriptorLimit returns that there is no limit: Windows limits handles by memory alone.
func descriptorLimit() (int, bool) { return 0, false }
