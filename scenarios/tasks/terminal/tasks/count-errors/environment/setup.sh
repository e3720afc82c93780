set -e
mkdir -p logs/old
printf 'INFO start\nERROR disk full\nWARN ERRORS seen\nERROR: again\n' > logs/a.log
printf 'error in lower case\nfatal ERROR\nERROR ERROR twice in a line\n' > logs/b.log
printf 'ERROR at the end' > logs/old/c.log
