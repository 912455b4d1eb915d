package main

import "path/filepath"

// libraryFolders are the folders of shared libraries on Linux systems.
var libraryFolders = []string{"/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib/x86_64-linux-gnu",
	"/usr/lib/x86_64-linux-gnu"}

// hasLibrary reports whether there is a shared library with this name.
func hasLibrary(name string) bool {
	for _, dir := range libraryFolders {
		if found, err := filepath.Glob(filepath.Join(dir, name)); err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}
