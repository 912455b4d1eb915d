package main

import "path/filepath"

// libraryFolders are where Linux systems have their shared libraries.
var libraryFolders = []string{"/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"}

func hasLibrary(name string) bool {
	for _, dir := range libraryFolders {
		if found, err := filepath.Glob(filepath.Join(dir, name)); err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}
