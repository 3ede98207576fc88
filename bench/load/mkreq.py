"""prebuilt requests"""
import struct, os, json, sys
import fastcrc
def uv(n):
    o=bytearray()
    while n>0x7f: o.append((n&0x7f)|0x80); n>>=7
    o.append(n); return bytes(o)
def zz(n): return uv((n<<1)^(n>>63))
def record(i,val):
    b=b'\0'+zz(0)+zz(i)+zz(-1)+zz(len(val))+val+zz(0)
    return zz(len(b))+b
def batch(nrec,vsize,rnd=True):
    recs=b''.join(record(i,os.urandom(vsize)) for i in range(nrec))
    body=struct.pack('>hiqqqhii',0,nrec-1,1700000000000,1700000000000,-1,-1,-1,nrec)+recs
    crc=fastcrc.crc32.iscsi(body)
    return struct.pack('>qiibI',0,len(body)+9,-1,2,crc)+body
def produce(topic,b,ver=10,client=b'lg',acks=1):
    t=topic.encode()
    h=struct.pack('>hhih',0,ver,7,len(client))+client+b'\0'
    h+=b'\0'+struct.pack('>hi',acks,30000)+b'\x02'+uv(len(t)+1)+t+b'\x02'
    poff=len(h)+4
    h+=struct.pack('>i',0)+uv(len(b)+1)
    r=h+b+b'\0\0\0'
    return struct.pack('>i',len(r))+r, poff
def fetch(topic,ver=12,client=b'lg',pmax=1<<20,maxb=50<<20,minb=1,wait=0):
    t=topic.encode()
    h=struct.pack('>hhih',1,ver,7,len(client))+client+b'\0'
    h+=struct.pack('>iiiibii',-1,wait,minb,maxb,0,0,-1)+b'\x02'+uv(len(t)+1)+t+b'\x02'
    poff=len(h)+4
    h+=struct.pack('>ii',0,-1); ooff=len(h)+4
    h+=struct.pack('>qiqi',0,-1,-1,pmax)+b'\0'+b'\0'+b'\x01'+b'\x01'+b'\0'
    fix=4+4+1+4+2+4+1+1+len(t)+1+4+2
    return struct.pack('>i',len(h))+h,poff,ooff,fix
def main():
    d=sys.argv[1] if len(sys.argv)>1 else 'requests'; os.makedirs(d,exist_ok=True); meta={}
    for name,n,v in (('s100x1',1,100),('s100x10k',9300,100),('s1kx1000',1000,1024),('s1kx15',15,1024),('s100x150',150,100),('s1kx1',1,1024)):
        b=batch(n,v); r,po=produce('t',b); open(f'{d}/{name}','wb').write(r)
        meta[name]=dict(poff=po,batch=len(b),recs=n,payload=n*v,req=len(r))
    for pm in (1<<20,4<<20,16<<10*2):
        r,po,oo,fix=fetch('t',pmax=pm); open(f'{d}/f{pm}','wb').write(r); meta[f'f{pm}']=dict(poff=po,ooff=oo,fix=fix)
    json.dump(meta,open(d+'/meta.json','w'),indent=1); print(json.dumps(meta))
if __name__=='__main__': main()
