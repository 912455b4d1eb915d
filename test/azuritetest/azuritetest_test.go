package azuritetest

import "testing"

func TestParse(t *testing.T) {
	t.Setenv("AZURE_STORAGE_KEY", "")
	s, err := parse("azblob://emulator/x")
	if err != nil || !s.Emulator || s.Endpoint != "http://127.0.0.1:10000/devstoreaccount1" {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []string{"", "azblob:", "http://emulator/x", "azblob://account/x"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	t.Setenv("AZURE_STORAGE_KEY", "a2V5")
	if s, err := parse("azblob://account/x"); err != nil || s.Emulator || s.Endpoint != "https://account.blob.core.windows.net" {
		t.Errorf("%+v, %v", s, err)
	}
}
