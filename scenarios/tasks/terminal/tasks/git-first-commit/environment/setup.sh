set -e
mkdir -p project/build project/src
echo 'print(1)' > project/src/main.py
echo binary > project/build/out.bin
echo text > project/README
echo noise > project/run.log
echo noise > project/src/debug.log
