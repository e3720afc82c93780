set -e
mkdir work
cd work
echo 'the heron waits' > note.txt
tar -cf inner.tar note.txt
gzip -c inner.tar > inner.tar.gz
echo nothing > other.txt
tar -czf middle.tgz inner.tar.gz other.txt
tar -czf ../parcel.tar.gz middle.tgz
cd ..
rm -r work
