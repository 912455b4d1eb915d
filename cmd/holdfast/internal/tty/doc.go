// Package tty asks about the terminal, and stops the process for the shell.
package tty
