// The first thread of the first block: one START record (device_abi.h).
{
        .reg .pred %p;
        .reg .b32 %x, %y, %zero, %id, %sm, %slot, %context, %queue;
        .reg .b64 %t, %n, %g, %w, %s, %a, %lane;

        mov.u32 %x, %ctaid.x;
        setp.ne.u32 %p, %x, 0;
        @%p bra L@U@_end;
        mov.u32 %x, %ctaid.y;
        mov.u32 %y, %ctaid.z;
        or.b32 %x, %x, %y;
        setp.ne.u32 %p, %x, 0;
        @%p bra L@U@_end;
        // zero, but the assembler must think that it differs between lanes
        mov.u32 %zero, %tid.x;
        mov.u32 %y, %tid.y;
        or.b32 %zero, %zero, %y;
        mov.u32 %y, %tid.z;
        or.b32 %zero, %zero, %y;
        setp.ne.u32 %p, %zero, 0;
        @%p bra L@U@_end;
        cvt.u64.u32 %lane, %zero;

        mov.u64 %t, %globaltimer;
        mov.b64 %a, @M1@;
        or.b64 %a, %a, %lane;
        atom.global.gpu.add.u64 %n, [%a], 1;
        mov.u64 %g, %gridid;
        or.b64 %g, %g, %lane;
        @C0@ %context, @C1@;
        shl.b32 %context, %context, 16;
        or.b32 %context, %context, 0x100;
        mov.b64 %a, {%zero, %context};
        or.b64 %g, %g, %a;
        mov.u32 %sm, %smid;
        or.b32 %id, %zero, @K@;
        @Q0@ %queue, @Q1@;
        and.b32 %queue, %queue, 0xffffff00;
        shl.b32 %x, %sm, 24;
        or.b32 %id, %id, %x;
        shr.u32 %sm, %sm, 8;
        or.b32 %queue, %queue, %sm;
        mov.b64 %w, {%id, %queue};
        // seal
        mul.lo.u64 %a, %g, 0x9e3779b97f4a7c15;
        xor.b64 %s, %t, %a;
        mul.lo.u64 %a, %w, 0xc2b2ae3d27d4eb4f;
        xor.b64 %s, %s, %a;
        add.u64 %a, %n, 1;
        xor.b64 %s, %s, %a;
        cvt.u32.u64 %slot, %n;
        and.b32 %slot, %slot, 65535;
        mov.b64 %a, @M0@;
        mad.wide.u32 %a, %slot, 32, %a;
        st.global.v2.u64 [%a], {%t, %g};
        st.global.v2.u64 [%a + 16], {%w, %s};
L@U@_end:
}
