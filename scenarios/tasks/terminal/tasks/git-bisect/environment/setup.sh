set -e
git init -q repo
cd repo
git checkout -q -b main
printf '10\n20\n30\n' > numbers.txt
printf 'total=0\nwhile read -r number; do\n    total=$((total + number))\ndone < "$1"\necho $total\n' > total.sh
git add .
git commit -qm 'Add numbers'
for step in 1 2 3 4 5 6 7 8 9 10 11 12; do
    echo "note $step" >> notes.txt
    if [ $step = 5 ]; then sed -i 's/^total=0/total=0 # sum/' total.sh; fi
    if [ $step = 8 ]; then sed -i 's/done < "$1"/done < <(head -n -1 "$1")/' total.sh; fi
    if [ $step = 10 ]; then sed -i 's/^echo $total/echo "$total"/' total.sh; fi
    git add .
    git commit -qm "Step $step"
done
