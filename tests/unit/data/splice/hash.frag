{
	// at most 734 instructions, 50 memory operations, 20 atomics
	.reg .pred %zp<3>;
	.reg .b32 %z, %zt, %zu;
	.reg .b64 %zl;
	.reg .b64 %b<11>;
	.reg .b64 %d<16>;
	.reg .b32 %w<4>;
	.reg .pred %p<5>;
	.reg .b64 %s<2>;
	mov.u32 %zt, %lanemask_lt;
	mov.u32 %zu, %lanemask_eq;
	and.b32 %z, %zt, %zu;
	cvt.u64.u32 %zl, %z;
	mov.b64 %s0, 0;
	mov.b64 %s1, 0;
	// device_loops.bpf.c:66 __u64 key = ctx->thread_x, zero = 0, *v = bpf_map_lookup_elem(&table, &key);
	mov.u32 %w0, %tid.x;
	shf.l.wrap.b32 %w0, %w0, %w0, %z;
	cvt.u64.u32 %b1, %w0;
	mov.b64 %s0, %b1;
	mov.b64 %b1, 0x0;
	mov.b64 %s1, %b1;
	mov.b64 %d0, %s0;
	xor.b64 %d0, %d0, 0x5bd1e9955bd1e995;
	mov.b64 %d1, @M0@;
	or.b64 %d1, %d1, %zl;
	setp.eq.u64 %p0, %d0, 0;
	@%p0 mov.b64 %d0, 1;
	mul.lo.s64 %d2, %d0, 0x9e3779b97f4a7c15;
	shr.u64 %d2, %d2, 53;
	@%p0 mov.b64 %d2, 0x800;
	mov.u32 %w1, 16;
	or.b32 %w1, %w1, %z;
	or.b64 %d2, %d2, %zl;
G@U@_look7:
	mul.lo.s64 %d3, %d2, 24;
	add.s64 %d3, %d3, %d1;
	ld.relaxed.gpu.global.u64 %d4, [%d3+64];
	setp.eq.u64 %p0, %d4, %d0;
	@%p0 bra G@U@_have7;
	setp.eq.u64 %p0, %d4, 0;
	@%p0 bra G@U@_none7;
	add.s64 %d2, %d2, 1;
	and.b64 %d2, %d2, 0x7ff;
	sub.s32 %w1, %w1, 1;
	setp.ne.u32 %p0, %w1, 0;
	@%p0 bra G@U@_look7;
G@U@_none7:
	mov.b64 %b0, 0;
	bra G@U@_done7;
G@U@_have7:
	ld.relaxed.gpu.global.u64 %d4, [%d3+72];
	setp.eq.u64 %p0, %d4, 0;
	add.s64 %b0, %d3, 80;
	selp.b64 %b0, 0, %b0, %p0;
G@U@_done7:
	// device_loops.bpf.c:68 if (!v) {
	setp.ne.u64 %p1, %b0, 0;
	@%p1 bra G@U@_21;
	// device_loops.bpf.c:69 bpf_map_update_elem(&table, &key, &zero, BPF_NOEXIST);
	mov.b64 %b4, 0x1;
	mov.b64 %d5, %s0;
	xor.b64 %d5, %d5, 0x5bd1e9955bd1e995;
	mov.b64 %d6, @M0@;
	or.b64 %d6, %d6, %zl;
	setp.eq.u64 %p2, %d5, 0;
	@%p2 mov.b64 %d5, 1;
	mul.lo.s64 %d7, %d5, 0x9e3779b97f4a7c15;
	shr.u64 %d7, %d7, 53;
	@%p2 mov.b64 %d7, 0x800;
	mov.u32 %w2, 16;
	or.b32 %w2, %w2, %z;
	or.b64 %d7, %d7, %zl;
G@U@_look16:
	mul.lo.s64 %d8, %d7, 24;
	add.s64 %d8, %d8, %d6;
	ld.relaxed.gpu.global.u64 %d9, [%d8+64];
	setp.eq.u64 %p2, %d9, %d5;
	@%p2 bra G@U@_have16;
	setp.ne.u64 %p2, %d9, 0;
	@%p2 bra G@U@_next16;
	atom.global.gpu.cas.b64 %d9, [%d8+64], 0, %d5;
	setp.eq.u64 %p2, %d9, 0;
	@%p2 bra G@U@_have16;
	setp.eq.u64 %p2, %d9, %d5;
	@%p2 bra G@U@_have16;
G@U@_next16:
	add.s64 %d7, %d7, 1;
	and.b64 %d7, %d7, 0x7ff;
	sub.s32 %w2, %w2, 1;
	setp.ne.u32 %p2, %w2, 0;
	@%p2 bra G@U@_look16;
	red.global.gpu.add.u64 [%d6], 1;
	mov.b64 %b0, -7;
	bra G@U@_done16;
G@U@_have16:
	atom.global.gpu.exch.b64 %d9, [%d8+72], 1;
	mov.b64 %b0, -17;
	setp.ne.u64 %p2, %d9, 0;
	@%p2 bra G@U@_done16;
	mov.b64 %d10, %s1;
	red.global.gpu.add.u64 [%d8+80], %d10;
	mov.b64 %b0, 0;
G@U@_done16:
	// device_loops.bpf.c:70 v = bpf_map_lookup_elem(&table, &key);
	mov.b64 %d11, %s0;
	xor.b64 %d11, %d11, 0x5bd1e9955bd1e995;
	mov.b64 %d12, @M0@;
	or.b64 %d12, %d12, %zl;
	setp.eq.u64 %p3, %d11, 0;
	@%p3 mov.b64 %d11, 1;
	mul.lo.s64 %d13, %d11, 0x9e3779b97f4a7c15;
	shr.u64 %d13, %d13, 53;
	@%p3 mov.b64 %d13, 0x800;
	mov.u32 %w3, 16;
	or.b32 %w3, %w3, %z;
	or.b64 %d13, %d13, %zl;
G@U@_look19:
	mul.lo.s64 %d14, %d13, 24;
	add.s64 %d14, %d14, %d12;
	ld.relaxed.gpu.global.u64 %d15, [%d14+64];
	setp.eq.u64 %p3, %d15, %d11;
	@%p3 bra G@U@_have19;
	setp.eq.u64 %p3, %d15, 0;
	@%p3 bra G@U@_none19;
	add.s64 %d13, %d13, 1;
	and.b64 %d13, %d13, 0x7ff;
	sub.s32 %w3, %w3, 1;
	setp.ne.u32 %p3, %w3, 0;
	@%p3 bra G@U@_look19;
G@U@_none19:
	mov.b64 %b0, 0;
	bra G@U@_done19;
G@U@_have19:
	ld.relaxed.gpu.global.u64 %d15, [%d14+72];
	setp.eq.u64 %p3, %d15, 0;
	add.s64 %b0, %d14, 80;
	selp.b64 %b0, 0, %b0, %p3;
G@U@_done19:
	// device_loops.bpf.c:72 if (v)
	setp.eq.u64 %p4, %b0, 0;
	@%p4 bra G@U@_23;
G@U@_21:
	mov.b64 %b1, 0x1;
	// device_loops.bpf.c:73 __sync_fetch_and_add(v, 1);
	red.global.gpu.add.u64 [%b0+0], %b1;
G@U@_23:
	// device_loops.bpf.c:74 return 0;
	mov.b64 %b0, 0x0;
G@U@_end:
}
