set -e
printf 'id,name,team\n1,Ann,red\n2,Bo,blue\n3,Cy,red\n4,Di,green\n' > people.csv
printf '1\tmon\t2.5\n2\tmon\t8\n3\ttue\t1\n9\ttue\t4\n1\twed\t0.5\n' > hours.tsv
