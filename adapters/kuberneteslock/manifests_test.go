package kuberneteslock_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// podOf decodes a manifest into the API's own type, without unknown or repeated fields.
func podOf(t *testing.T, content []byte) corev1.PodSpec {
	t.Helper()
	var kind struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal(content, &kind); err != nil {
		t.Fatal(err)
	}
	var deployment appsv1.Deployment
	var job batchv1.CronJob
	var err error
	switch kind.APIVersion + " " + kind.Kind {
	case "apps/v1 Deployment":
		err = yaml.UnmarshalStrict(content, &deployment)
		pod, selector := deployment.Spec.Template, deployment.Spec.Selector.MatchLabels
		for key, value := range selector {
			if pod.Labels[key] != value {
				t.Errorf("the selector %s=%s does not match the pods", key, value)
			}
		}
		if len(selector) == 0 || deployment.Spec.Replicas == nil || *deployment.Spec.Replicas < 2 {
			t.Error("no selector, or no standby")
		}
		return checked(t, pod.Spec, err)
	case "batch/v1 CronJob":
		err = yaml.UnmarshalStrict(content, &job)
		return checked(t, job.Spec.JobTemplate.Spec.Template.Spec, err)
	default:
		t.Fatalf("%+v", kind)
		return corev1.PodSpec{}
	}
}

func checked(t *testing.T, pod corev1.PodSpec, err error) corev1.PodSpec {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// The manifests of deploy/kubernetes have only fields that the API knows, and what they refer to exists in them.
func TestManifests(t *testing.T) {
	files, err := filepath.Glob("../../deploy/kubernetes/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v (%v)", files, err)
	}
	for _, path := range files {
		if filepath.Base(path) == "locks-role.yaml" {
			continue // no pod; a test of drivers/kubernetes reads it
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			pod := podOf(t, bytes.TrimSpace(content))
			volumes := map[string]bool{}
			for _, v := range pod.Volumes {
				volumes[v.Name] = true
			}
			holdfast := 0
			for _, c := range append(pod.InitContainers, pod.Containers...) {
				ports := map[string]bool{}
				for _, p := range c.Ports {
					ports[p.Name] = true
				}
				for _, probe := range []*corev1.Probe{c.LivenessProbe, c.StartupProbe, c.ReadinessProbe} {
					if probe != nil && !ports[probe.HTTPGet.Port.StrVal] {
						t.Errorf("a probe of %s has the port %s, which the container does not name", c.Name, probe.HTTPGet.Port.StrVal)
					}
				}
				for _, m := range c.VolumeMounts {
					if !volumes[m.Name] {
						t.Errorf("%s mounts %s, which is no volume of the pod", c.Name, m.Name)
					}
				}
				if len(c.Command) > 0 && c.Command[0] == "holdfast" {
					holdfast++
				}
			}
			if holdfast != 1 || pod.TerminationGracePeriodSeconds == nil {
				t.Errorf("%d containers start holdfast; the grace period is %v", holdfast, pod.TerminationGracePeriodSeconds)
			}
		})
	}
}
