# Ends with 0 if the task is done.
set -e
folder=$(mktemp -d)
cd /app
export PYTHONSAFEPATH=
printf '# all\n2025-01-01 a b 0.10\n\n2025-01-01  a   b\t0.20\n2025-01-02 b c 0.30\n2025-01-03 c a 1\n' > "$folder/good"
diff <(printf 'a 0.70\nc -0.70\n') <(timeout 10 python3 -m ledger "$folder/good")
printf '2025-01-01 a a 5\n' > "$folder/same"
test -z "$(timeout 10 python3 -m ledger "$folder/same")"
for bad in '2025-01-01 a b' '2025-01-01 a b x' '2025-01-01 a b nan' '2025-01-01 a b 1.234' '2025-13-01 a b 1.00' '1 2 3 4 5'; do
    printf '2025-01-01 a b 0.10\n\n%s\n' "$bad" > "$folder/bad"
    code=0
    timeout 10 python3 -m ledger "$folder/bad" > "$folder/out" 2> "$folder/err" || code=$?
    test $code = 2
    test ! -s "$folder/out"
    grep -q '^line 3: .' "$folder/err"
done
