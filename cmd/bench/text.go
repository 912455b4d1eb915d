package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Row is a latency of a report and its name.
type Row struct {
	Name string
	*Latency
}

// Rows returns the measured latencies, in the order of WriteText.
func (r *Report) Rows() []Row {
	var rows []Row
	for _, c := range []Row{
		{"acquire", r.Acquire}, {"renew", r.Renew}, {"release", r.Release},
		{"handoff after a release", r.HandOver}, {"takeover after a crash", r.TakeOver},
	} {
		if c.Latency != nil {
			rows = append(rows, c)
		}
	}
	return rows
}

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "%s from %s, %d processors, %s\n", r.Backend, r.System, r.CPUs, r.Go)
	if rows := r.Rows(); len(rows) > 0 {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(table, "\nmilliseconds\tp50\tp90\tp99\tcount\t")
		for _, row := range rows {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t\n", row.Name, threeDigits(row.P50), threeDigits(row.P90), threeDigits(row.P99), row.Count)
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	if r.HandOverRatio != nil {
		fmt.Fprintf(w, "\nA handoff takes %.2f × an acquire and a release.\n", *r.HandOverRatio)
	}
	if r.TakeOver != nil {
		fmt.Fprintln(w, "A takeover is measured from the expiry of the crashed holder's lease.")
	}
	if len(r.Leases) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\nleases\tTTL\theld for\tlost\t%s/s\tone by one/s\tCPU\tbytes/lease\tgoroutines\t\n", r.Counted)
	for _, h := range r.Leases {
		fmt.Fprintf(table, "%d\t%.3gs\t%.3gs\t%d\t%.2f\t%.2f\t%.1f %%\t%.0f\t%d\t\n", h.Leases, h.TTL/1000, h.Holding/1000, h.Lost,
			h.Calls, h.OneByOne, h.CPU, h.Bytes, h.Goroutines)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\nCPU is the share of one processor that this process used, bytes are heap and stacks, goroutines are those "+
		"in addition to a process without leases.")
	return err
}

// threeDigits formats a number with at least three digits.
func threeDigits(x float64) string {
	switch {
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	case x >= 1:
		return fmt.Sprintf("%.2f", x)
	default:
		return fmt.Sprintf("%.3f", x)
	}
}
