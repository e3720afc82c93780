set -e
cat > orders.csv <<'END'
id,customer,amount,note
1,Ann,10.50,"first, and urgent"
2,Bo,0.25,
3,"Cy, Jr.",7.00,"two
lines, 99.99"
4,Ann,102.25,plain
END
