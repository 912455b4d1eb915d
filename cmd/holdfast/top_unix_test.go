//go:build unix

package main

import (
	"context"
	"os"

	tea "charm.land/bubbletea/v2"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/table"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// panickingTop is the name under which the test binary is a table that panics at the key P.
const panickingTop = "holdfast-top-panic"

type panickingModel struct{ *table.Model }

func (p panickingModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	if key, ok := msg.(tea.KeyPressMsg); ok && key.String() == "P" {
		panic("as the test says")
	}
	_, cmd := p.Model.Update(msg)
	return p, cmd
}

func runPanickingTop() {
	client, err := holdfast.Open(context.Background(), os.Getenv(envBackend))
	if err != nil {
		panic(err)
	}
	source := lockview.NewSource(client, "", minEvery)
	source.Enter()
	os.Exit(exitcode.Of(table.Run(context.Background(), panickingModel{table.New(context.Background(), client, source, table.Options{})})))
}
