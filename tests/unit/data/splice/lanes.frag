// The lowest of the lanes that came together: how many they are, by kernel.
{
        .reg .pred %p;
        .reg .b32 %below, %lanes, %zero, %id;
        .reg .b64 %a, %n;

        mov.u32 %below, %lanemask_lt;
        activemask.b32 %lanes;
        mov.u32 %zero, %lanemask_eq;
        and.b32 %zero, %zero, %below;
        shf.l.wrap.b32 %lanes, %lanes, %lanes, %zero;
        and.b32 %zero, %below, %lanes;
        setp.ne.u32 %p, %zero, 0;
        @%p bra L@U@_end;
        popc.b32 %lanes, %lanes;
        cvt.u64.u32 %n, %lanes;
        or.b32 %id, %zero, @K@;
        and.b32 %id, %id, 1023;
        mul.wide.u32 %a, %id, 8;
        add.u64 %a, %a, @M1@;
        red.global.gpu.add.u64 [%a], %n;
L@U@_end:
}
