# Ends with 0 if the task is done.
set -e
diff <(printf 'ann\t1000\t2000\t3\t/a\nbo\t1000\t3601\t4\t/a\nann\t5000\t0\t1\t/b\nann\t1000000\t0\t1\t/x\n') /app/sessions.tsv
