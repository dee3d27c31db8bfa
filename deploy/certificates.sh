#!/usr/bin/env bash
# Makes the certificates of one cluster, for scheduler, workers and clients alike:
#
#     certificates.sh FOLDER [DAYS]
#
# FOLDER gets ca.pem, cert.pem and key.pem. Whoever holds key.pem can run code on the cluster. The key
# of the authority is thrown away, so nobody can make further certificates: for new ones, run again.
set -euo pipefail
umask 077

folder=${1:?a folder for the certificates}
days=${2:-365}
if [ -e "$folder/key.pem" ]; then
    echo "$folder/key.pem exists; give another folder, or remove it" >&2
    exit 1
fi
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/openssl.cnf" <<'EXTENSIONS'
[req]
distinguished_name = name
prompt = no
[name]
CN = dshift
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[member]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
EXTENSIONS
curve=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -config "$work/openssl.cnf")

openssl req -x509 "${curve[@]}" -days "$days" -extensions authority \
    -subj "/CN=dshift authority" -keyout "$work/ca.key" -out "$folder/ca.pem" 2>"$work/log" ||
    { cat "$work/log" >&2; exit 1; }
openssl req -new "${curve[@]}" -keyout "$folder/key.pem" -out "$work/cert.csr" 2>"$work/log" ||
    { cat "$work/log" >&2; exit 1; }
openssl x509 -req -in "$work/cert.csr" -CA "$folder/ca.pem" -CAkey "$work/ca.key" \
    -set_serial 1 -days "$days" -extfile "$work/openssl.cnf" -extensions member \
    -out "$folder/cert.pem" 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
echo "ca.pem, cert.pem and key.pem are in $folder, good for $days days"
