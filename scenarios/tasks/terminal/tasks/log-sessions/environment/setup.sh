set -e
cat > access.log <<'END'
5000 ann /b
1000 bo /a
2800 bo /c
4601 bo /a
1200 ann /a
# restarted
3000 ann /b
oops ann /a
1000 ann /z
2900 bo /c
9999 cy
1000000 ann /x
END
