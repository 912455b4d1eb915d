// Package tools has only folders and scripts: what makes and checks pages, builds and releases. It is no part of the API and may
// change at any time. CONTRIBUTING.md has the list.
package tools
