set -e
cd /app
{
    printf 'PARTS := $(sort $(wildcard parts/*.txt))\n\n'
    printf 'report.txt: $(PARTS)\n'
    printf '\tfor part in $(PARTS); do echo "== $$(basename $$part .txt) =="; cat $$part; done > $@\n\n'
    printf '.PHONY: clean\nclean:\n\trm -f report.txt\n'
} > Makefile
