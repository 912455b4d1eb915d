package docs

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	workflowUses = regexp.MustCompile(`(?m)^\s*(?:- )?uses: (.*)$`)
	pinnedAction = regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	workflowMake = regexp.MustCompile(`\bmake ([a-z0-9-][^\n}"]*)`)
)

// Actions of the workflows are pinned to commits, since a tag can be moved. What the workflows run
// exists.
func TestWorkflows(t *testing.T) {
	everyday, tools := makeTargets(t, "Makefile"), makeTargets(t, "tools/tools.mk")
	paths, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*.yml"))
	if err != nil || len(paths) < 3 {
		t.Fatalf("%d workflows were found (%v)", len(paths), err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(path)
		if strings.Contains(string(text), "\t") {
			t.Errorf("%s has a tab, which YAML forbids for indentation", name)
		}
		if !strings.Contains(string(text), "\npermissions:\n  contents: read\n") {
			t.Errorf("%s does not restrict the token of all jobs to reading", name)
		}
		for _, m := range workflowUses.FindAllStringSubmatch(string(text), -1) {
			if !pinnedAction.MatchString(m[1]) {
				t.Errorf("%s: %s is not pinned to a commit, with the version in a comment", name, m[1])
			}
		}
		for _, m := range workflowMake.FindAllStringSubmatch(string(text), -1) {
			if problem := checkMake(strings.Fields(m[1]), everyday, tools); problem != "" {
				t.Errorf("%s: make %s: %s", name, m[1], problem)
			}
		}
	}
}

// "make verify" loops over all modules, of which those that are not released do not compile in the commit of a tag. So the workflow of
// a release runs it on the commit before, from which the tag's may differ in go.mod and go.sum files alone. It takes three hours.
func TestReleaseIsChecked(t *testing.T) {
	jobs := workflowJobs(t, "release.yml")
	check, guard, found := jobs["check"], "", false
	if _, rest, ok := strings.Cut(check, "        run: |\n"); ok {
		guard, check, found = strings.Cut(rest, "      - run: git checkout --quiet --detach HEAD~1\n")
	}
	if !found || !strings.Contains(check, "make verify\n") {
		t.Fatal("the job check does not look at the tag's commit, check out the one before, and run make verify, in this order")
	}
	for name, job := range jobs {
		if name != "check" && regexp.MustCompile(`make (verify|test|lint|vet-quick\n)|\.ci/run`).MatchString(job) {
			t.Errorf("the job %s runs on the tag's commit what loops over the modules that are not released", name)
		}
	}
	if !strings.HasPrefix(jobs["release"], "    needs: [check, tagged]\n") {
		t.Error("the job release does not wait for the jobs check and tagged")
	}
	for of, job := range map[string]string{"release.yml": jobs["check"], "nightly.yml": workflowJobs(t, "nightly.yml")["check"]} {
		limit := regexp.MustCompile(`(?m)^    timeout-minutes: (\d+)\b`).FindStringSubmatch(job)
		if limit == nil {
			t.Errorf("%s: the job check has no timeout-minutes", of)
		} else if minutes, _ := strconv.Atoi(limit[1]); minutes < 300 || minutes > 360 {
			t.Errorf("%s: the job check has timeout-minutes %d; 300 leave make verify time, 360 are GitHub's limit", of, minutes)
		}
		if !strings.Contains(job, "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0\n") {
			t.Errorf("%s: the job check allows no user namespaces, so Chromium does not start", of)
		}
	}

	dir := t.TempDir()
	script := func(text string) error {
		cmd := exec.CommandContext(t.Context(), "bash", "-e", "-c", text)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_DIR="+filepath.Join(dir, ".git"), "GIT_WORK_TREE="+dir, "GIT_INDEX_FILE="+
			filepath.Join(dir, ".git", "index"), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com",
			"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
		out, err := cmd.CombinedOutput()
		t.Logf("%s%s", text, out)
		return err
	}
	commit := func(files ...string) {
		t.Helper()
		if err := script("mkdir -p cmd && for f in " + strings.Join(files, " ") + "; do date +%N >>$f; done && git add . && " +
			"git commit -q -m x"); err != nil {
			t.Fatal(err)
		}
	}
	if err := script("git init -q"); err != nil {
		t.Fatal(err)
	}
	commit("go.mod")
	if commit("cmd/go.mod", "cmd/go.sum", "go.sum"); script(guard) != nil {
		t.Error("a tag's commit with go.mod and go.sum files is refused")
	}
	for _, other := range []string{"lock.go", "cmd/ago.mod", "go.mod.go"} {
		if commit("cmd/go.mod", other); script(guard) == nil {
			t.Errorf("a tag's commit that changes %s is not refused", other)
		}
	}
}

// The job with the oldest Go leaves out the drivers that need a newer one. Their pages say so.
func TestOldestGo(t *testing.T) {
	needs := regexp.MustCompile(`(?m)^go (\d+\.\d+)\.`)
	oldest := needs.FindStringSubmatch(read(t, "go.mod"))[1]
	left := regexp.MustCompile(`\$\(filter-out (.*),\$\(DRIVER_MODULES\)\) otelholdfast`).FindStringSubmatch(read(t, "tools/tools.mk"))
	if left == nil {
		t.Fatal("the target vet-oldest filters nothing out of the drivers")
	}
	modules, err := filepath.Glob(filepath.Join(root, "drivers", "*", "go.mod"))
	if err != nil || len(modules) < 6 {
		t.Fatalf("%d modules were found (%v)", len(modules), err)
	}
	for _, module := range modules {
		driver := filepath.Base(filepath.Dir(module))
		if version := needs.FindStringSubmatch(read(t, "drivers/"+driver+"/go.mod"))[1]; version == oldest {
			continue
		} else if !strings.Contains(read(t, "docs/"+driver+".md"), "Go "+version) {
			t.Errorf("docs/%s.md does not say that the driver needs Go %s", driver, version)
		}
		if !slices.Contains(strings.Fields(left[1]), "drivers/"+driver) {
			t.Errorf("the target vet-oldest has drivers/%s, which needs a newer Go than %s", driver, oldest)
		}
	}
}

// workflowJobs returns the text of each job of a workflow.
func workflowJobs(t *testing.T, file string) map[string]string {
	t.Helper()
	_, all, _ := strings.Cut(read(t, ".github/workflows/"+file), "\njobs:\n")
	jobs, name := map[string]string{}, ""
	for line := range strings.Lines(all) {
		if title := regexp.MustCompile(`^  (\w+):\n$`).FindStringSubmatch(line); title != nil {
			name = title[1]
		} else {
			jobs[name] += line
		}
	}
	return jobs
}

// GitHub starts no workflow for a push of more than three tags, so the tag that starts the workflow is pushed by itself, after those of
// the modules.
func TestReleaseIsPushedByItself(t *testing.T) {
	if !strings.HasSuffix(read(t, "tools/release.sh"), `echo "git push origin ${tags#* } && git push origin $version"`+"\n") {
		t.Error("release.sh does not end with the two pushes")
	}
}

// goreleaser puts the program and the extra files, with their folders, where the image of a release is built.
func TestImageOfARelease(t *testing.T) {
	config, err := os.ReadFile(filepath.Join(root, "tools", "goreleaser.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	image, err := os.ReadFile(filepath.Join(root, "tools", "release.Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	extra := regexp.MustCompile(`extra_files: \[(.*)\]`).FindStringSubmatch(string(config))
	if extra == nil {
		t.Fatal("goreleaser.yaml has no extra_files")
	}
	there := append(strings.Split(extra[1], ", "), "holdfast")
	var copied []string
	for _, m := range regexp.MustCompile(`(?m)^COPY (.*) \S+$`).FindAllStringSubmatch(string(image), -1) {
		copied = append(copied, strings.Fields(m[1])...)
	}
	slices.Sort(there)
	if slices.Sort(copied); !slices.Equal(copied, there) {
		t.Errorf("the image copies %q, and goreleaser provides %q", copied, there)
	}
}

// Dependabot looks at every module, and CI tests with the oldest Go that the library allows.
func TestModulesAreKeptUpToDate(t *testing.T) {
	config, err := os.ReadFile(filepath.Join(root, ".github", "dependabot.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range modules(t) {
		if module != "." && !strings.Contains(string(config), "\n      - /"+module+"\n") {
			t.Errorf("dependabot.yml lacks /%s", module)
		}
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	ci, err := os.ReadFile(filepath.Join(root, ".github", "workflows", "ci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	oldest := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(mod))
	if oldest == nil || !strings.Contains(string(ci), `go-version: "`+oldest[1]+`.x"`) {
		t.Errorf("ci.yml does not test with the oldest Go of go.mod, %q", oldest)
	}
}

// modules returns the folders of all modules, relative to the root.
func modules(t *testing.T) (all []string) {
	t.Helper()
	eachFile(t, "go.mod", func(path string) error {
		all = append(all, moduleOf(filepath.Dir(path)))
		return nil
	})
	return all
}

// eachFile calls fn for each file whose path ends with a text, outside of hidden folders.
func eachFile(t *testing.T, suffix string, fn func(path string) error) {
	t.Helper()
	if err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, suffix):
			return nil
		}
		return fn(path)
	}); err != nil {
		t.Fatal(err)
	}
}

// A module that a list by hand lacks would not be linted, tested or released, and nothing else would notice. The lists have
// all drivers by themselves. The module that is in no list is built by itself.
func TestModulesAreInTheLists(t *testing.T) {
	linted := append(makeList(t, "MODULES"), makeList(t, "LARGE_MODULES")...)
	tested := append(makeList(t, "TESTED_MODULES"), makeList(t, "LARGE_MODULES")...)
	script, err := os.ReadFile(filepath.Join(root, "tools", "release.sh"))
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^modules="\$\(echo drivers/\*/go.mod \| .*\) (.*)"$`).FindStringSubmatch(string(script))
	if list == nil {
		t.Fatal("release.sh has no list of modules that begins with all drivers")
	}
	released := append(driverModules(t), strings.Fields(list[1])...)
	command, err := os.ReadFile(filepath.Join(root, "cmd", "holdfast", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	alone := makeList(t, "CADDY")
	for _, module := range modules(t) {
		if !slices.Contains(linted, module) && !slices.Contains(alone, module) {
			t.Errorf("neither MODULES nor LARGE_MODULES of the Makefile has %s", module)
		}
		if strings.HasPrefix(module, "drivers/") && !slices.Contains(tested, module) {
			t.Errorf("neither TESTED_MODULES nor LARGE_MODULES of the Makefile has %s", module)
		}
		required := strings.Contains(string(command), " => ../../"+module+"\n")
		if at := slices.Index(released, module); required && (at < 0 || at > slices.Index(released, "cmd/holdfast")) {
			t.Errorf("release.sh does not release %s before cmd/holdfast, which requires it", module)
		}
	}
}

// makeList returns a list of the Makefile.
func makeList(t *testing.T, name string) []string {
	t.Helper()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	oneLine := strings.ReplaceAll(string(makefile), "\\\n", " ")
	list := regexp.MustCompile(`(?m)^` + name + ` := (.*)$`).FindStringSubmatch(oneLine)
	if list == nil {
		t.Fatalf("the Makefile has no %s", name)
	}
	var all []string
	for _, word := range strings.Fields(list[1]) {
		if word == "$(DRIVER_MODULES)" {
			large := makeList(t, "LARGE_MODULES")
			all = append(all, slices.DeleteFunc(driverModules(t), func(m string) bool { return slices.Contains(large, m) })...)
		} else {
			all = append(all, word)
		}
	}
	return all
}

// driverModules returns the folders of the drivers that are modules of their own.
func driverModules(t *testing.T) (all []string) {
	t.Helper()
	for _, module := range modules(t) {
		if strings.HasPrefix(module, "drivers/") {
			all = append(all, module)
		}
	}
	return all
}

// make fuzz runs the fuzz tests of every module that has some.
func TestFuzzedModules(t *testing.T) {
	fuzzTest := regexp.MustCompile(`(?m)^func Fuzz`)
	modules := map[string]bool{}
	eachFile(t, "_test.go", func(path string) error {
		text, err := os.ReadFile(path)
		if err == nil && fuzzTest.Match(text) {
			modules[moduleOf(filepath.Dir(path))] = true
		}
		return err
	})
	want := slices.Sorted(maps.Keys(modules))
	if got := slices.Sorted(slices.Values(makeList(t, "FUZZED_MODULES"))); !slices.Equal(got, want) {
		t.Errorf("FUZZED_MODULES has %q, and fuzz tests are in %q", got, want)
	}
}

// moduleOf returns the folder of the module that a folder belongs to, relative to the root.
func moduleOf(folder string) string {
	for folder != root {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			break
		}
		folder = filepath.Dir(folder)
	}
	relative, err := filepath.Rel(root, folder)
	if err != nil {
		return folder
	}
	return filepath.ToSlash(relative)
}

// Each fault of the track record that has a command names a package and tests as tools/before-fix.sh takes them.
func TestTrackRecordHasCommands(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "tools", "track-record.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	commit := regexp.MustCompile(`^(ONLY=\S+ )?[0-9a-f]{7}(, [0-9a-f]{7})*$`)
	commands := 0
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t") // promise, fault, means, fix, package, tests
		switch {
		case len(fields) != 6:
			t.Errorf("a line has %d fields, want 6: %s", len(fields), line)
			continue
		case fields[0] == "promise":
			continue
		case !commit.MatchString(fields[3]):
			t.Errorf("%q is no commit", fields[3])
		case fields[4] == "":
			continue
		}
		commands++
		if _, err := os.Stat(filepath.Join(root, fields[4])); err != nil {
			t.Errorf("there is no package %s", fields[4])
		}
		expression, _, _ := strings.Cut(fields[5], " ")
		if _, err := regexp.Compile(expression); err != nil {
			t.Error(err)
		}
	}
	if commands < 20 {
		t.Errorf("only %d faults have a command", commands)
	}
}
